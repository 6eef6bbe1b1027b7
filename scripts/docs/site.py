"""What the documentation's site needs beside mkdocs.yml: a hook of MkDocs.

Pages are written so that they can be read on GitHub as they are. For the site, pages that lie
outside docs/ are added, a notebook becomes a page, and formulas become drawings, which need no
script and no font of the browser's.
"""

import base64
import json
import posixpath
import re
from html import escape, unescape
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from ziamath import Latex

ROOT = Path(__file__).resolve().parents[2]

OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "integrations/comfyui/icon.svg": "figures/icon.svg",
}
"""Files that do not lie in docs/, and their names on the site."""

NOTEBOOKS = {"quickstart.ipynb": "quickstart.md"}
"""Notebooks in docs/, and the pages they become."""

FORMULA_SIZE = 17
"""Pixels, of a text of 16."""

LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")
FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">(?P<bracket>\\[(\[])(?P<tex>.*?)\\[)\]]</(?P=tag)>',
    re.DOTALL,
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, name in OUTSIDE.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    for source, name in NOTEBOOKS.items():
        notebook = json.loads((Path(config.docs_dir) / source).read_text("utf-8"))
        files.append(File.generated(config, name, content=notebook_page(notebook)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that lead somewhere on the site and do not read as files, and formulas in the form that
    the site's parser knows: GitHub shows a block of `math` as it stands."""
    inside = {site: source for source, site in OUTSIDE.items()}
    source = inside.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def on_the_site(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        known = {f"docs/{notebook}": name for notebook, name in NOTEBOOKS.items()} | OUTSIDE
        name = known.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(name, posixpath.dirname(page.file.src_uri))

    markdown = re.sub(
        r"\[(?:[\w-]+/)?([\w-]+)\.md\]\(", lambda link: f"[{in_words(link[1])}](", markdown
    )
    markdown = re.sub(
        r"^```math\n(.*?)^```$", r"$$\n\1$$", markdown, flags=re.DOTALL | re.MULTILINE
    )
    return LINK.sub(on_the_site, markdown)


def in_words(name: str) -> str:
    """Of a page, by the name of its file."""
    return name.replace("-", " ") if name.islower() else name.capitalize()


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return FORMULA.sub(drawing, html)


def drawing(formula: re.Match[str]) -> str:
    """Of the formula that the parser of Markdown has marked: SVG on the line's baseline, or in a
    block of its own."""
    tex, inline = unescape(formula["tex"]).strip(), formula["bracket"] == r"\("
    shown = Latex(tex, size=FORMULA_SIZE, inline=inline, color="currentColor", margin=0)
    attributes = f'role="img" aria-label="{escape(tex)}"'
    if inline:
        attributes += f' style="vertical-align: {shown.getyofst():.2f}px"'
    svg = shown.svg().replace("<svg ", f"<svg {attributes} ", 1)
    return svg if inline else f'<div class="formula">{svg}</div>'


def notebook_page(notebook: dict[str, Any]) -> str:
    """Its cells and what they have printed and shown, as Markdown."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        parts += [shown(output) for output in cell["outputs"]]
    return "\n\n".join(parts) + "\n"


def shown(output: dict[str, Any]) -> str:
    """An output of a cell: a picture, or its text."""
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        base64.b64decode(picture, validate=True)
        return f"![What the cell shows](data:image/png;base64,{picture})"
    text = "".join(output.get("text") or data["text/plain"]).rstrip()
    return f"```text\n{text}\n```"

"""What the documentation's site needs beside mkdocs.yml: its pages, and an extension of Markdown.

Pages are written so that they can be read on GitHub as they are. For the site, `python -m
scripts.docs.site` writes them into out/pages: pages that lie outside docs/ are added and a notebook
becomes a page. The extension turns formulas into SVG, which needs no script and no font of the
browser's.
"""

import json
import posixpath
import re
import shutil
from html import escape, unescape
from pathlib import Path
from typing import Any

import click
from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor
from ziamath import Latex

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "out" / "pages"

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


def write_pages(folder: Path = PAGES) -> None:
    """docs/ as the site has it; what `folder` held is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for source, name in OUTSIDE.items():
        shutil.copyfile(ROOT / source, folder / name)
    for source, name in NOTEBOOKS.items():
        notebook = json.loads((folder / source).read_text("utf-8"))
        (folder / name).write_text(notebook_page(notebook), "utf-8")
    for page in folder.rglob("*.md"):
        name = page.relative_to(folder).as_posix()
        page.write_text(site_markdown(page.read_text("utf-8"), name), "utf-8")


def site_markdown(markdown: str, name: str) -> str:
    """Of a page of the site: links that lead somewhere on it and do not read as files, and formulas
    in the form that its parser knows: GitHub shows a block of `math` as it stands."""
    inside = {site: source for source, site in OUTSIDE.items()}
    source = inside.get(name, f"docs/{name}")

    def on_the_site(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        known = {f"docs/{notebook}": page for notebook, page in NOTEBOOKS.items()} | OUTSIDE
        return posixpath.relpath(
            known.get(target, target.removeprefix("docs/")), posixpath.dirname(name)
        )

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


class Formulas(Extension, Postprocessor):
    """Formulas that pymdownx.arithmatex has marked become SVG."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (Python-Markdown's name)
        md.postprocessors.register(self, "formulas", 0)

    def run(self, text: str) -> str:
        return FORMULA.sub(drawing, text)


makeExtension = Formulas  # noqa: N816 (Python-Markdown calls it)


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
        return f"![What the cell shows](data:image/png;base64,{picture})"
    text = "".join(output.get("text") or data["text/plain"]).rstrip()
    return f"```text\n{text}\n```"


if __name__ == "__main__":
    click.command(help=__doc__)(write_pages)()

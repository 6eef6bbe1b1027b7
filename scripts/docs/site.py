"""Prepares the pages of the documentation site, and renders formulas in Markdown.

The pages in docs/ can be read on GitHub as they are. For the site, `python -m scripts.docs.site`
writes them to out/pages, adds pages from outside docs/ and the reference of public names, and
converts notebooks. The Markdown extension renders formulas as SVG, which needs no scripts and no
fonts in the browser.
"""

import inspect
import json
import posixpath
import re
import shutil
from html import escape, unescape
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from markdown import Markdown
from markdown.extensions import Extension
from markdown.postprocessors import Postprocessor
from ziamath import Latex

from vendi_guidance.lazy import homes_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "out" / "pages"

OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "integrations/comfyui/icon.svg": "figures/icon.svg",
}
"""Files outside docs/ -> their names on the site."""

REFERENCE = {
    stub.relative_to(ROOT).as_posix(): f"reference/{stub.parent.name}.md"
    for stub in (ROOT / "vendi_guidance").rglob("__init__.pyi")
}
"""Lists of public names -> pages with their docstrings on the site."""

NOTEBOOK, ITS_PAGE = "quickstart.ipynb", "quickstart.md"

FORMULA_SIZE = 17
"""In pixels; the text has 16."""

MATH = re.compile(r"^```math\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")
FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">(?P<bracket>\\[(\[])(?P<tex>.*?)\\[)\]]</(?P=tag)>',
    re.DOTALL,
)


def write_pages(folder: Path = PAGES) -> None:
    """Write the site's pages into a folder, whose previous content is deleted."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for source, name in OUTSIDE.items():
        shutil.copyfile(ROOT / source, folder / name)
    (folder / "reference").mkdir()
    for stub, name in REFERENCE.items():
        (folder / name).write_text(reference_page(stub), "utf-8")
    notebook = json.loads((folder / NOTEBOOK).read_text("utf-8"))
    (folder / ITS_PAGE).write_text(notebook_page(notebook), "utf-8")
    for page in folder.rglob("*.md"):
        name = page.relative_to(folder).as_posix()
        page.write_text(site_markdown(page.read_text("utf-8"), name), "utf-8")


def site_markdown(markdown: str, name: str) -> str:
    """Adapt a page to the site: link targets, and formulas, which GitHub reads from `math`
    blocks."""
    sources = {page: source for source, page in OUTSIDE.items()}
    folder = posixpath.dirname(sources.get(name, f"docs/{name}"))
    pages = {f"docs/{NOTEBOOK}": ITS_PAGE} | OUTSIDE | REFERENCE

    def on_the_site(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        page = pages.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(page, posixpath.dirname(name))

    return LINK.sub(on_the_site, MATH.sub(r"$$\n\1$$", markdown))


def reference_page(stub: str) -> str:
    """The public names of a package, in place of which mkdocstrings puts their docstrings."""
    package = posixpath.dirname(stub).replace("/", ".")
    parts = [f"# {package}", inspect.getdoc(import_module(package)) or ""]
    for name, home in homes_of(str(ROOT / stub)).items():
        # griffe finds pipelines where their files are
        home = home.replace("vendi_guidance.pipelines", "pipelines")
        parts.append(f"::: {home}.{name}")
    return "\n\n".join(parts) + "\n"


class Formulas(Extension, Postprocessor):
    """Renders the formulas that pymdownx.arithmatex marks."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (Python-Markdown's name)
        md.postprocessors.register(self, "formulas", 0)

    def run(self, text: str) -> str:
        return FORMULA.sub(rendered, text)


makeExtension = Formulas  # noqa: N816 (Python-Markdown calls it)


def rendered(formula: re.Match[str]) -> str:
    """The SVG of a marked formula, on the baseline of its line or as a block."""
    tex, inline = unescape(formula["tex"]).strip(), formula["bracket"] == r"\("
    image = Latex(tex, size=FORMULA_SIZE, inline=inline, color="currentColor", margin=0)
    attributes = f'role="img" aria-label="{escape(tex)}"'
    if inline:
        attributes += f' style="vertical-align: {image.getyofst():.2f}px"'
    svg = image.svg().replace("<svg ", f"<svg {attributes} ", 1)
    return svg if inline else f'<div class="formula">{svg}</div>'


def notebook_page(notebook: dict[str, Any]) -> str:
    """The cells of a notebook and their outputs, as Markdown."""
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
    """An output of a cell: an image or text."""
    data = output.get("data", {})
    if "image/png" in data:
        image = "".join(data["image/png"]).replace("\n", "")
        return f"![Output of the cell](data:image/png;base64,{image})"
    text = "".join(output.get("text") or data["text/plain"]).rstrip()
    return f"```text\n{text}\n```"


if __name__ == "__main__":
    click.command(help=__doc__)(write_pages)()

"""The documentation as a site: what `make docs` builds, without building it."""

import inspect
import re
from dataclasses import is_dataclass
from pathlib import Path
from typing import get_args

import griffe
import nbformat
import pytest
import yaml
from latex2mathml.converter import convert
from markdown import markdown
from ziamath import Latex

from scripts.docs.docstrings import Docstrings
from scripts.docs.site import PAGES, REFERENCE, makeExtension, reference_page, write_pages
from tests.docs.test_docs import broken_links, without_code
from tests.helpers.public import PUBLIC

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
LARGEST_NOTEBOOK = 500_000  # bytes, pictures included
TALLEST = 150  # pixels, at the drawing's usual size: some brackets never end


def named_in(contents):
    """The pages of a table of contents, in order."""
    if isinstance(contents, str):
        return [contents]
    below = contents.values() if isinstance(contents, dict) else contents
    return [page for part in below for page in named_in(part)]


def test_the_site_fetches_nothing_and_is_strict():
    assert SITE["theme"]["font"] is False
    assert SITE["strict"] is True
    assert "extra_javascript" not in SITE
    assert "offline" in SITE["plugins"]  # which fetches this script, unless there is one:
    [script] = SITE["extra"]["polyfills"]
    assert script == "iframe-worker.js" and (DOCS / script).is_file()


def test_the_pages_of_the_site_link_to_one_another(tmp_path):
    assert ROOT / SITE["docs_dir"] == PAGES
    (tmp_path / "stale.md").touch()
    write_pages(tmp_path)
    pages = {str(page.relative_to(tmp_path)): page for page in tmp_path.rglob("*.md")}
    assert sorted(pages) == sorted(named_in(SITE["nav"]))
    assert "[architecture](architecture.md)" in pages["contributing.md"].read_text("utf-8")
    assert "(quickstart.md)" in pages["index.md"].read_text("utf-8")
    assert "```math" not in pages["theory.md"].read_text("utf-8")
    assert [link for page in pages.values() for link in broken_links(page)] == []


def test_what_public_functions_return_is_public():
    functions = [one for one in PUBLIC.values() if not inspect.isclass(one)]
    returned = [inspect.signature(one).return_annotation for one in functions]
    kinds = {kind for one in returned for kind in (one, *get_args(one)) if inspect.isclass(kind)}
    results = {one.__name__ for one in kinds if is_dataclass(one) or hasattr(one, "_fields")}
    assert {"Convergence", "Mode", "Comparison", "ManifoldScores"} <= results
    assert results <= PUBLIC.keys()


def test_the_reference_shows_every_public_name_where_it_is_defined():
    pages = "\n".join(map(reference_page, REFERENCE))
    shown = re.findall(r"^::: ([\w.]+)\.(\w+)$", pages, re.MULTILINE)
    homes = {name: one.__module__ for name, one in PUBLIC.items()}
    assert {name: home for home, name in shown} == {
        name: home.removeprefix("vendi_guidance.") if ".pipelines." in home else home
        for name, home in homes.items()
    }
    assert len(shown) == len(PUBLIC)


def test_the_reference_shows_the_settings_by_name():
    extensions = griffe.load_extensions(Docstrings())
    package = griffe.load("vendi_guidance", search_paths=[str(ROOT)], extensions=extensions)
    guidance = package["adapter.callback.VendiGuidance"]
    shown = guidance.docstring.value
    assert "{" not in shown and "rounds (int): How many" in shown
    assert "diversity (float): The dial" in shown
    assert "\nExamples:\n    >>> " in shown
    for name, sigma in (("Rounds", "None"), ("Published", "0.8")):
        settings = package[f"guidance.settings.{name}"]
        assert "sigma_latent (float): The bandwidth" in settings.docstring.value
        assert settings.parameters["sigma_latent"].default == sigma


def test_a_formula_becomes_a_drawing_with_its_text():
    how = {"extensions": ["pymdownx.arithmatex", makeExtension()]}
    how |= {"extension_configs": {"pymdownx.arithmatex": {"generic": True}}}
    shown = markdown("so $a < b$, `$c$`\n\n$$\nd\n$$", **how)
    assert shown.startswith("<p>so <svg") and 'aria-label="a &lt; b"' in shown
    assert "currentColor" in shown and "\\(" not in shown and "<code>$c$</code>" in shown
    assert '<div class="formula"><svg' in shown


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_formulas_of_a_page_hold_no_command_that_is_not_known(page):
    text = page.read_text("utf-8")
    blocks = re.findall(r"^```math\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    for formula in (*blocks, *re.findall(r"(?<![\w`])\$([^$`\n]+)\$", without_code(page))):
        assert "\\" not in convert(formula), formula
        assert Latex(formula).getsize()[1] < TALLEST, formula


@pytest.fixture(scope="module")
def notebook():
    return nbformat.read(DOCS / "quickstart.ipynb", as_version=4)


def test_the_notebook_runs_from_top_to_bottom(notebook, monkeypatch, capsys):
    monkeypatch.chdir(DOCS)
    exec("\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code"), {})
    found = re.findall(r"([\d.]+) different images", capsys.readouterr().out)
    without, varied = map(float, found)
    assert varied > 2 * without


def test_the_notebook_is_stored_with_its_outputs_and_small(notebook):
    ran = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert ran == list(range(1, len(ran) + 1))
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    assert not any(output.get("name") == "stderr" for output in outputs)
    assert (DOCS / "quickstart.ipynb").stat().st_size < LARGEST_NOTEBOOK

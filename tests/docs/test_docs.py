"""The documentation: its code runs as it stands, and its links lead somewhere."""

import re
from pathlib import Path

import pytest
from diffusers import StableDiffusionXLPipeline

from vendi_guidance import VendiGuidedSDXLPipeline

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY"))]
PAGES += sorted(DOCS.rglob("*.md"))


def code_of(page):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    assert blocks
    return "\n".join(blocks)


@pytest.mark.parametrize("page", ["scores.md", "evaluation.md", "theory.md"])
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(code_of(page), {})


def test_the_code_about_the_dial_runs_with_a_pipeline(tiny_sdxl_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    classes = {"pipe": VendiGuidedSDXLPipeline, "stock": StableDiffusionXLPipeline}
    exec(
        code_of("dial.md"),
        {name: kind.from_pretrained(tiny_sdxl_folder) for name, kind in classes.items()},
    )
    assert (tmp_path / "waving.safetensors").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_point_to_files_and_headings(page):
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Two words, `code`\n[a](#two-words-code) [b](#three) [c](gone.md) [d](page.md#x)"
    )
    assert broken_links(page) == ["#three", "gone.md", "page.md#x"]


def test_modules_and_tests_that_the_docs_name_exist():
    named = {
        name
        for page in PAGES
        for name in re.findall(
            r"`((?:vendi_guidance|pipelines|scripts|tests|assets)/[\w/.-]*)`", page.read_text()
        )
    }
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def broken_links(page):
    """The relative links of a page to files or headings that do not exist."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


def anchors(page):
    """Of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def without_code(page):
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)

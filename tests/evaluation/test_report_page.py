"""The page of a report as a browser shows it: headless Chromium, driven by playwright."""

from dataclasses import replace
from urllib.parse import urlparse

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe

from tests.helpers.batches_at_hand import COLOURS, report_of, sample_images
from tests.helpers.browsing import watched
from vendi_guidance.evaluation.attributes import Attribute
from vendi_guidance.evaluation.evaluator import compare
from vendi_guidance.evaluation.judges import AttributeJudge
from vendi_guidance.features.files import BadImage

HOSTILE = [
    "<img src=x onerror=\"document.title = 'owned'\">",
    "</style></title><script>document.title = 'owned'</script>",
    "javascript:alert(1) \"' onload='alert(1)'",
    "{{ 7 * 7 }} {% raise %} $\\frac{",
    "عربي ‮ 漢字 🖐🏿",
    "=SUM(A1:A9)\n\tsecond line",
    "long " * 300,
    "",
]


class Brightness(AttributeJudge):
    embedder = COLOURS

    def probabilities(self, features, attribute):
        bright = (features[:, 0] > features[:, 0].median()).double()
        return torch.stack([1 - bright, bright], dim=1)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages of two runs with hostile names and prompts, of one run, and of two images without
    prompts."""
    folder = tmp_path_factory.mktemp("reports")
    given = {"references": sample_images(12), "truncation": 8}
    given |= {"prompts": [HOSTILE[i // 8] for i in range(64)], "attribute_judge": Brightness()}
    given["attributes"] = [Attribute(HOSTILE[0], ("dark", HOSTILE[1])), Attribute("=1", ("a", "b"))]
    names = {10: "<b onclick=alert(1)>a</b>", 60: 'b"> & $\\frac'}
    runs = [report_of(64, spread, name=name, **given) for spread, name in names.items()]
    runs[0].skipped.append(BadImage("<img src=y>.png", "it is <i>broken</i>"))
    plain = [replace(run, name=f"varied_{i}_of_photographs_at_half") for i, run in enumerate(runs)]
    return {
        "two": compare(*runs).save(folder / "two"),
        "one": runs[0].save(folder / "one"),
        "names": compare(*plain).save(folder / "names"),
        "two pictures": report_of(2, prompts=None).save(folder / "few"),
    }


@pytest.fixture
def visit(browser):
    """Open a page with `visit(path, width=..., scheme=...)`, and check its requests afterwards."""
    opened = []
    with watched(browser, "requestfailed") as (open_page, asked):

        def visit(path, *given, **named):
            opened.append(path)
            return open_page(path.as_uri(), *given, **named)

        yield visit
    assert {urlparse(url).scheme for url in asked} <= {"file", "data"}
    assert len([url for url in asked if url.startswith("file")]) == len(opened)


@pytest.mark.parametrize("which", ["two", "one", "two pictures"])
@pytest.mark.parametrize("width", [1280, 400])
def test_every_image_loads_and_nothing_is_wider_than_the_window(visit, pages, which, width):
    page = visit(pages[which], width)
    page.evaluate("for (const image of document.images) image.loading = 'eager'")
    page.wait_for_function("[...document.images].every(image => image.complete)")
    sizes = page.evaluate("[...document.images].map(image => image.naturalWidth)")
    assert len(sizes) > 2 and min(sizes) > 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_names_of_runs_break_in_no_word(visit, pages):
    """A word of a run's name in the table of attributes is in one line, also in a narrow window."""
    page = visit(pages["names"], 1100)
    heights = page.evaluate(
        "[...document.querySelectorAll('#attributes .scroll tbody td:nth-child(2)')]"
        ".map(cell => { const range = document.createRange(); range.selectNodeContents(cell);"
        " return range.getClientRects().length })"
    )
    assert heights == [1] * 4


def test_prompts_and_names_stay_text(visit, pages):
    page = visit(pages["two"])
    names = '<b onclick=alert(1)>a</b> and b"> & $\\frac'
    assert page.title() == f"How diverse: {names}"
    assert page.locator("main script, main b[onclick], img[src='x'], img[src='y']").count() == 0
    headings = page.locator("h3.prompt").all_text_contents()
    assert sorted(headings) == sorted(prompt or "(empty)" for prompt in HOSTILE)
    assert "<img src=y>.png: it is <i>broken</i>" in page.locator("#computed").text_content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("which", ["two", "one"])
def test_axe_finds_nothing_that_keeps_people_out(visit, pages, which, scheme):
    page = visit(pages[which], scheme=scheme)
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_the_page_and_its_figures_follow_the_colour_scheme(visit, pages):
    ink = "getComputedStyle(document.body).color"
    word = "getComputedStyle(document.querySelector('figure svg text')).fill"
    backgrounds = []
    for scheme in ("light", "dark"):
        page = visit(pages["two"], scheme=scheme)
        assert page.evaluate(f"{ink} === {word}")
        backgrounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert backgrounds[0] == "rgb(255, 255, 255)" != backgrounds[1]


def test_a_keyboard_reaches_the_scores_and_every_detail(visit, pages):
    page = visit(pages["one"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the scores"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#scores"
    summary = page.locator("#computed summary")
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("#computed details[open]").count() == 1


def test_on_paper_there_is_no_navigation_and_every_detail(visit, pages):
    page = visit(pages["one"])
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.locator("#computed dl").is_visible()
    assert page.pdf().startswith(b"%PDF")

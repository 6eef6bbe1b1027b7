"""The page as a person uses it: headless Chromium, driven by playwright."""

import re
from urllib.parse import urlparse
from zipfile import ZipFile

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.helpers.app_at_hand import served
from tests.helpers.browsing import PATIENCE, chromium
from tests.helpers.runs import read_run
from vendi_guidance.guidance.window import SlidingWindow

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def address(tiny_sdxl_folder, tiny_probe_folder):
    with served(tiny_sdxl_folder, tiny_probe_folder, "cat\ndog") as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def visit(browser, address):
    """Open the page: `visit(width=..., scheme=...)`; afterwards nothing may have gone wrong."""
    heard, asked, contexts = [], [], []

    def open_page(width=1280, scheme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            reduced_motion="reduce",
            accept_downloads=True,
        )
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        for event in ("console", "pageerror", "dialog"):
            page.on(event, lambda what: heard.append(str(what)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        page.get_by_text("No pictures are remembered").wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert heard == []
    servers = {urlparse(url).netloc for url in asked if urlparse(url).scheme.startswith("http")}
    assert servers == {urlparse(address).netloc}


def draw(page, **fields):
    """Fill in fields by their labels, draw, and wait until the pictures are scored."""
    for label, value in fields.items():
        page.get_by_label(re.compile(label)).first.fill(str(value))
    page.get_by_role("button", name="Draw").click()
    page.get_by_text("Drawn. Select a picture").wait_for()


def pictures(page, arm):
    """The addresses of the pictures of one kind."""
    thumbnails = page.locator(f"#{arm} .thumbnail-item img")
    return thumbnails.evaluate_all("images => images.map(image => image.src)")


def download(page, name, path):
    with page.expect_download() as waiting:
        page.get_by_role("button", name=name, exact=True).click()
    waiting.value.save_as(path)
    return path


def test_a_whole_session(visit, tmp_path):
    page = visit()
    page.get_by_label("number input for The dial").fill("0.8")
    draw(page, Prompts=f"cat\n{HOSTILE}", Pictures=3, Seed=7)
    first = pictures(page, "with")
    assert len(first) == len(pictures(page, "without")) == 6
    assert {"Conditional-Vendi", "looks", "named kept"} <= set(
        page.locator("#scores tbody th").evaluate_all("all => all.map(th => th.firstChild.data)")
    )
    page.locator("#with .thumbnail-item").nth(4).click()
    page.get_by_text(f"Selected: a picture of “{HOSTILE}”, with guidance.").wait_for()
    page.get_by_role("button", name="Not like this").click()
    page.get_by_text("8 pictures are remembered, of 300 at most. Marked to avoid: 1").wait_for()

    saved = download(page, "Save", tmp_path / "saved.safetensors")
    assert len(SlidingWindow.load(saved)) == 8
    with ZipFile(download(page, "Download pictures and report", tmp_path / "all.zip")) as packed:
        packed.extractall(tmp_path / "all")
    run = read_run(tmp_path / "all" / "with")
    assert run.prompts == ["cat"] * 3 + [HOSTILE] * 3
    assert [row["seed"] for row in run.rows] == list(range(7, 13))
    assert {round(row["diversity_scale"], 3) for row in run.rows} == {4.24}
    assert (tmp_path / "all" / "report" / "report.html").is_file()

    page.reload()  # a new session
    page.get_by_text("No pictures are remembered").wait_for()
    with page.expect_file_chooser() as waiting:
        page.get_by_role("button", name="Load", exact=True).click()
    waiting.value.set_files(saved)
    page.get_by_text("8 pictures are remembered").wait_for()
    page.get_by_label("number input for The dial").fill("0.8")
    draw(page, Prompts=f"cat\n{HOSTILE}", Pictures=3, Seed=7)
    assert page.get_by_text("14 pictures are remembered").is_visible()
    assert pictures(page, "with") != first
    page.get_by_role("button", name="Forget").click()
    page.get_by_text("No pictures are remembered").wait_for()
    assert page.title() == "Vendi Guidance"
    assert page.locator("img[src=x]").count() == 0


def test_stop_stops_and_the_next_drawing_works(visit):
    page = visit()
    page.get_by_role("button", name="Expert settings").click()
    page.get_by_label(re.compile("Steps")).fill("100")
    page.get_by_label(re.compile("Pictures per prompt")).fill("16")
    page.get_by_role("button", name="Draw").click()
    page.get_by_text(re.compile(r"guidance, step \d+ of 100")).first.wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped: ").wait_for()
    page.get_by_label(re.compile("Steps")).fill("2")
    draw(page, Pictures=1)
    assert len(pictures(page, "with")) == 2


def test_the_keyboard_is_enough(visit):
    page = visit()
    page.get_by_label(re.compile("Pictures per prompt")).focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("1")
    for _ in range(9):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "draw":
            break
    page.keyboard.press("Enter")
    page.get_by_text("Drawn. Select a picture").wait_for()
    page.locator("#with .thumbnail-item").first.focus()
    page.keyboard.press("Enter")
    page.get_by_text("Selected: a picture of “cat”, with guidance.").wait_for()
    page.get_by_role("button", name="More like this").focus()
    page.keyboard.press("Enter")
    page.get_by_text("Marked as examples: 1").wait_for()


def test_visitors_see_nothing_of_one_another(visit):
    one, other = visit(), visit()
    draw(one, Pictures=1)
    assert one.get_by_text("2 pictures are remembered").is_visible()
    assert other.get_by_text("No pictures are remembered").is_visible()
    assert pictures(other, "with") == []
    draw(other, Pictures=1, Seed=1)
    assert other.get_by_text("2 pictures are remembered").is_visible()


def test_mistakes_are_told_in_a_sentence(visit):
    page = visit()
    page.get_by_label(re.compile("Pictures per prompt")).fill("99")
    page.get_by_role("button", name="Draw").click()
    page.get_by_text("Pictures per prompt must be a whole number from 1 to 16.").wait_for()
    page.get_by_role("button", name="Draw").wait_for()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_axe_finds_nothing_that_keeps_people_out(visit, width, scheme):
    page = visit(width, scheme)
    page.get_by_role("button", name="Expert settings").click()
    draw(page, Pictures=4)
    page.mouse.move(0, 0)
    for is_selected in (False, True):
        if is_selected:
            page.locator("#with .thumbnail-item").first.click()
            page.get_by_text("Selected: a picture").wait_for()
        found = Axe().run(page).response["violations"]
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width

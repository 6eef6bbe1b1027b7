"""The page as a person uses it: headless Chromium, driven by playwright."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.helpers.app_at_hand import served
from tests.helpers.browsing import chromium, draw, pictures, visits, whole_session


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
    with visits(browser, address) as open_page:
        yield open_page


def test_a_whole_session(visit, tmp_path):
    whole_session(visit(), tmp_path)


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

"""The page as a person uses it: headless Chromium, driven by playwright."""

import re
from itertools import combinations
from urllib.parse import urlparse
from zipfile import ZipFile

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.helpers.app_at_hand import served
from tests.helpers.browsing import watched
from tests.helpers.runs import read_run

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def address(tiny_sdxl_folder, tiny_probe_folder):
    with served(tiny_sdxl_folder, tiny_probe_folder, "cat\ndog") as address:
        yield address


@pytest.fixture
def visit(browser, address):
    with watched(browser) as (open_page, asked):

        def visit(*how):
            page = open_page(address, *how)
            page.get_by_text("No images are remembered").wait_for()
            return page

        yield visit
    servers = {urlparse(url).netloc for url in asked if urlparse(url).scheme.startswith("http")}
    assert servers == {urlparse(address).netloc}


def fill(page, **fields):
    for label, value in fields.items():
        page.get_by_label(re.compile(label)).first.fill(str(value))


def generate(page, **fields):
    """Fill in fields by their labels, generate, and wait until the images are scored."""
    fill(page, **fields)
    page.locator("#generate:enabled").click()
    page.get_by_text("Generated.").wait_for()
    page.locator("#with .thumbnail-item").first.wait_for()


def begin_long(page):
    """Begin a generation that takes until it is stopped."""
    fill(page, Prompts="\n".join(map(str, range(8))), Images=16)
    page.get_by_role("button", name="Generate").click()
    page.get_by_text(re.compile(r"guidance, step \d+ of 2")).first.wait_for()


def images(page, arm):
    """The addresses of the images of one kind."""
    thumbnails = page.locator(f"#{arm} .thumbnail-item img")
    return thumbnails.evaluate_all("images => images.map(image => image.src)")


def load(page, path):
    with page.expect_file_chooser() as waiting:
        page.get_by_role("button", name="Load memory").click()
    waiting.value.set_files(path)


def test_a_whole_session(visit, tmp_path):
    """Prompt, dial, images, scores, save, reload, load, forget."""
    page, asked = visit(), []
    page.on("dialog", lambda dialog: asked.append(dialog.type))
    page.get_by_label("number input for Diversity").fill("0.8")
    generate(page, Prompts=f"cat\n{HOSTILE}\ncat", Images=3, Seed=7)
    first = images(page, "with")
    assert len(first) == len(images(page, "without")) == 6
    assert page.locator("#scores th[scope=row]").count() > 2
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save images and memory").click()
    waiting.value.save_as(tmp_path / "all.zip")
    with ZipFile(tmp_path / "all.zip") as packed:
        packed.extractall(tmp_path)
    rows = read_run(tmp_path / "with").rows
    assert [row["seed"] for row in rows] == list(range(7, 13))
    assert {round(row["diversity"], 3) for row in rows} == {0.8}
    page.locator("#with .thumbnail-item").nth(4).click()
    page.locator("#with .caption").get_by_text(f"“{HOSTILE}”, seed 11, with guidance").wait_for()

    page.reload()  # a new session, which is asked about as images are lost
    page.get_by_text("No images are remembered").wait_for()
    assert asked == ["beforeunload"]
    (tmp_path / "damaged.safetensors").write_text("no tensors")
    load(page, tmp_path / "damaged.safetensors")
    page.get_by_text("Not loaded: the file is not a readable safetensors file").wait_for()
    load(page, tmp_path / "memory.safetensors")
    page.get_by_text("6 images are remembered").wait_for()
    page.get_by_label("number input for Diversity").fill("0.8")
    generate(page, Prompts=f"cat\n{HOSTILE}", Images=3, Seed=7)
    assert page.get_by_text("12 images are remembered").is_visible()
    assert images(page, "with") != first
    page.get_by_role("button", name="Forget").click()
    page.get_by_text("No images are remembered").wait_for()
    assert page.title() == "Vendi Guidance"
    assert page.locator("img[src=x]").count() == 0


def test_the_keyboard_is_enough(visit):
    page = visit()
    page.get_by_label("Prompts").fill("cat")
    page.get_by_label(re.compile("Images")).first.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("1")
    for _ in range(9):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "generate":
            break
    page.keyboard.press("Enter")
    page.get_by_text("Generated.").wait_for()
    page.locator("#with .thumbnail-item").first.focus()
    page.keyboard.press("Enter")
    page.get_by_text("“cat”, seed 0, with guidance").first.wait_for()
    page.get_by_label("Prompts").focus()
    page.keyboard.press("Control+Enter")
    page.get_by_text("2 images are remembered").wait_for()
    assert page.get_by_label("Prompts").input_value() == "cat"


def test_visitors_see_nothing_of_one_another_but_that_they_wait(visit):
    one, other = visit(), visit(768)
    generate(one, Prompts="cat", Images=2)
    assert one.get_by_text("2 images are remembered").is_visible()
    assert other.get_by_text("No images are remembered").is_visible()
    assert images(other, "with") == []
    begin_long(one)
    fill(other, Prompts="cat", Images=1)
    other.get_by_role("button", name="Generate").click()
    other.get_by_text(re.compile("queue: 1/1")).wait_for()
    one.get_by_role("button", name="Stop").click()
    other.get_by_text("Generated.").wait_for()
    other.locator("#with .thumbnail-item").first.wait_for()
    assert len(images(other, "with")) == 1
    assert other.get_by_text("1 image is remembered").is_visible()
    begin_long(one)
    one.close()  # ends its generation
    generate(other, Images=2)
    other.get_by_text("3 images are remembered").wait_for()


def test_after_every_mistake_a_visitor_goes_on(visit):
    page = visit()
    for message, (label, wrong, right) in {
        "A number is missing: fill in every field.": ("Images", "", 1),
        "Value -1 is less than minimum value 0.": ("Seed", -1, 0),
    }.items():
        fill(page, **{"Prompts": "cat", "Images": 1, label: wrong})
        page.locator("#generate:enabled").click()
        page.get_by_text(message).last.wait_for()
        page.get_by_text("That did not work.").wait_for()
        page.get_by_role("button", name="Close").or_(page.locator(".toast-close")).last.click()
        generate(page, **{label: right})
        assert len(images(page, "with")) == 1


ALWAYS = (
    *("#prompts", "#diversity", "#images", "#seed", "#generate", "#stop"),
    *("#memory", "#forget", "#load", "#save"),
)
PROGRESS = ("#progress .progress-level-inner", "#progress .progress-bar-wrap")
PREVIEW = ("#with .media-button", "#with .caption", "#with .thumbnails")

BOXES = """names => {
  const found = names.map(name => document.querySelector(name));
  if (!found.every(one => one?.checkVisibility())) return null;
  return found.map(one => {
    const {left, top, right, bottom} = one.getBoundingClientRect();
    return {left, top, right, bottom, cut: one.scrollWidth > one.clientWidth + 1};
  });
}"""
"""Of all elements at one moment, once they are visible: images that come move them."""


def assert_visible(page, *names):
    """Named elements are visible, within the page's width, whole, and beside one another."""
    width = page.viewport_size["width"]
    boxes = page.wait_for_function(BOXES, arg=names).json_value()
    for name, box in zip(names, boxes, strict=True):
        assert box["left"] >= 0 and box["right"] <= width, name
        assert not box["cut"] or name == "#with .thumbnails", name  # which can be scrolled
    for (name, one), (other_name, other) in combinations(zip(names, boxes, strict=True), 2):
        is_beside = any(
            before[end] <= after[start] + 1
            for before, after in ((one, other), (other, one))
            for start, end in (("left", "right"), ("top", "bottom"))
        )
        assert is_beside, f"{name} and {other_name} overlap at {width} pixels"
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def assert_axe_finds_nothing(page):
    page.mouse.move(0, 0)
    # Gradio's own toast has a button within a button
    found = Axe().run(page, {"exclude": [[".toast-wrap"]]}).response["violations"]
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (768, "light"), (1440, "light")])
def test_what_must_be_visible_is_and_neither_overlaps_nor_keeps_people_out(visit, width, scheme):
    page = visit(width, scheme)
    assert_visible(page, *ALWAYS)
    begin_long(page)
    said = page.get_by_text("Generating.")
    said.wait_for()
    assert said.evaluate("one => getComputedStyle(one).opacity") == "1"
    assert_visible(page, *ALWAYS, "#without", "#with", *PROGRESS, "#status p")
    assert_axe_finds_nothing(page)
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped: ").wait_for()
    fill(page, Images=99)
    page.locator("#generate:enabled").click()
    page.get_by_text("That did not work.").wait_for()
    assert_axe_finds_nothing(page)
    generate(page, Prompts=" ".join(["cat"] * 50) + "x" * 300, Images=4)
    assert len(images(page, "with")) == 4
    assert_axe_finds_nothing(page)
    page.locator("#with .thumbnail-item").first.click()
    assert_visible(page, *ALWAYS, "#status p", "#without", *PREVIEW, "#scores table")
    assert_axe_finds_nothing(page)

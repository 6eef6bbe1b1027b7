"""Headless Chromium, and the app's page in it as a person uses it."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from zipfile import ZipFile

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

from tests.conftest import NO_CHROMIUM
from tests.helpers.runs import read_run
from vendi_guidance.guidance.window import SlidingWindow

PATIENCE = 200_000  # milliseconds, for a machine with much else to do
HOSTILE = "<img src=x onerror=alert(1)>"


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; a test that needs it is skipped where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        if "CI" in os.environ:
            pytest.fail("there is no chromium, which .ci/run installs")
        pytest.skip(NO_CHROMIUM)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, timeout=PATIENCE)
        yield started
        started.close()


@contextmanager
def visits(browser: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """Opens the page: `visit(width=..., scheme=...)`; afterwards nothing may have gone wrong."""
    heard: list[str] = []
    asked: list[str] = []
    contexts: list[Any] = []

    def answer(dialog: Dialog) -> None:
        if dialog.type != "beforeunload":  # what a reload asks is expected
            heard.append(dialog.message)
        dialog.accept()

    def open_page(width: int = 1280, scheme: Any = "light") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            reduced_motion="reduce",
            accept_downloads=True,
        )
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        for event in ("console", "pageerror"):
            page.on(event, lambda what: heard.append(str(what)))
        page.on("dialog", answer)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        page.get_by_text("No images are remembered").wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert heard == []
    servers = {urlparse(url).netloc for url in asked if urlparse(url).scheme.startswith("http")}
    assert servers == {urlparse(address).netloc}


def generate(page: Page, **fields: object) -> None:
    """Fill in fields by their labels, generate, and wait until the images are scored."""
    for label, value in fields.items():
        page.get_by_label(re.compile(label)).first.fill(str(value))
    page.get_by_role("button", name="Generate").click()
    page.get_by_text("Generated. Select an image").wait_for()


def open_expert_settings(page: Page) -> None:
    """Unfold the expert settings, and wait until what is filled into them stays.

    Gradio mounts the fields when they are first unfolded, and up to three animation frames later
    sets them to their first values: what a script types before that is lost.
    """
    page.get_by_role("button", name="Expert settings").click()
    page.get_by_label(re.compile("Steps")).wait_for()
    for _ in range(10):
        page.evaluate("() => new Promise(requestAnimationFrame)")


def images(page: Page, arm: str) -> list[str]:
    """The addresses of the images of one kind."""
    thumbnails = page.locator(f"#{arm} .thumbnail-item img")
    return thumbnails.evaluate_all("images => images.map(image => image.src)")


def download(page: Page, name: str, path: Path) -> Path:
    with page.expect_download() as waiting:
        page.get_by_role("button", name=name, exact=True).click()
    waiting.value.save_as(path)
    return path


def whole_session(page: Page, folder: Path) -> None:
    """Prompt, dial, images, scores, "not like this", save, download, reload, load, forget.

    Args:
        page: of a server with the tiny SDXL and the tiny probe.
        folder: for what is downloaded.
    """
    page.get_by_label("number input for The dial").fill("0.8")
    generate(page, Prompts=f"cat\n{HOSTILE}", Images=3, Seed=7)
    first = images(page, "with")
    assert len(first) == len(images(page, "without")) == 6
    assert {"Conditional-Vendi", "looks", "named kept"} <= set(
        page.locator("#scores tbody th").evaluate_all("all => all.map(th => th.firstChild.data)")
    )
    page.locator("#with .thumbnail-item").nth(4).click()
    page.get_by_text(f"Selected: “{HOSTILE}”, seed 11, with guidance.").wait_for()
    page.get_by_role("button", name="Not like this").click()
    page.get_by_text("8 images are remembered, of 300 at most. Marked to avoid: 1").wait_for()

    saved = download(page, "Save", folder / "saved.safetensors")
    assert len(SlidingWindow.load(saved)) == 8
    with ZipFile(download(page, "Download images and report", folder / "all.zip")) as packed:
        packed.extractall(folder / "all")
    run = read_run(folder / "all" / "with")
    assert run.prompts == ["cat"] * 3 + [HOSTILE] * 3
    assert [row["seed"] for row in run.rows] == list(range(7, 13))
    assert {round(row["diversity_scale"], 3) for row in run.rows} == {4.24}
    assert (folder / "all" / "report" / "report.html").is_file()

    page.reload()  # a new session
    page.get_by_text("No images are remembered").wait_for()
    with page.expect_file_chooser() as waiting:
        page.get_by_role("button", name="Load", exact=True).click()
    waiting.value.set_files(saved)
    page.get_by_text("8 images are remembered").wait_for()
    page.get_by_label("number input for The dial").fill("0.8")
    generate(page, Prompts=f"cat\n{HOSTILE}", Images=3, Seed=7)
    assert page.get_by_text("14 images are remembered").is_visible()
    assert images(page, "with") != first
    page.get_by_role("button", name="Forget").click()
    page.get_by_text("No images are remembered").wait_for()
    assert page.title() == "Vendi Guidance"
    assert page.locator("img[src=x]").count() == 0

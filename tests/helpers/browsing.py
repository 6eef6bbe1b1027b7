"""Headless Chromium, and the app's page in it."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

from tests.conftest import NO_CHROMIUM

PATIENCE = 200_000  # milliseconds, for a machine with much else to do


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
def watched(browser: Browser, *more: Any) -> Iterator[tuple[Callable[..., Page], list[str]]]:
    """Opens pages: `open_page(address, width=..., scheme=...)`; and lists what they ask for.

    Afterwards nothing may have gone wrong: the console is empty, and only reloads have asked.

    Args:
        more: further events that may not happen.
    """
    heard: list[str] = []
    asked: list[str] = []
    contexts: list[Any] = []

    def answer(dialog: Dialog) -> None:
        if dialog.type != "beforeunload":
            heard.append(dialog.message)
        dialog.accept()

    def open_page(address: str, width: int = 1280, scheme: Any = "light") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            reduced_motion="reduce",
            accept_downloads=True,
        )
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        for event in ("console", "pageerror", *more):
            page.on(event, lambda what: heard.append(str(what)))
        page.on("dialog", answer)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        return page

    yield open_page, asked
    for context in contexts:
        context.close()
    assert heard == []

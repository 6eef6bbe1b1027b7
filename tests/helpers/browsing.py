"""Opens the app's page in headless Chromium."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Dialog, Page

PATIENCE = 200_000  # timeout in milliseconds, enough for a busy machine


@contextmanager
def watched(browser: Browser, *more: Any) -> Iterator[tuple[Callable[..., Page], list[str]]]:
    """Yields `open_page(address, width=..., scheme=...)`, and the URLs that pages request.

    Fails at the end if a page logged to the console, raised an error or opened a dialog, except the
    one before a reload, or if one of the events `more` occurred.
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

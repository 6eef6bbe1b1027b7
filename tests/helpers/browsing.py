"""Headless Chromium."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

PATIENCE = 200_000  # milliseconds, for a machine with much else to do


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; a test that needs it is skipped where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        if "CI" in os.environ:
            pytest.fail("there is no chromium, which .ci/run installs")
        pytest.skip("there is no chromium: install the distribution's package of that name")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, timeout=PATIENCE)
        yield started
        started.close()

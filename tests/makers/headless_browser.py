"""Headless Chromium for tests that drive a page; skips where there is none."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")


@contextmanager
def headless_chromium() -> "Iterator[Browser]":
    """A browser for the block; it makes no requests by itself."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if _CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=_CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()

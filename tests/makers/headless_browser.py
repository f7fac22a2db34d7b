"""Headless Chromium for tests that drive a page; skips where there is none."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from programs import need

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@contextmanager
def headless_chromium() -> "Iterator[Browser]":
    """A browser for the block; it makes no requests by itself."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = need("chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


def unfold(view: "Page") -> None:
    """Opens every part of a report page, until each chart is drawn or says that it cannot be."""
    # The event of an opened part comes later, and its charts after it.
    view.evaluate(
        "() => { document.querySelectorAll('.fold').forEach(part => { part.open = true; });"
        " return new Promise(done => setTimeout(done, 100)); }"
    )
    view.wait_for_selector("html[data-charts]", state="attached", timeout=120_000)


def legend_colours(view: "Page", *sections: str) -> dict[str, set[str]]:
    """The colours of each name in the legends of all charts of some sections."""
    found: dict[str, set[str]] = {}
    for section in sections:
        legends = view.locator(f"{section} .chart svg .role-legend")
        names = legends.locator(".role-legend-label text").all_text_contents()
        symbols = legends.locator(".role-legend-symbol path").all()
        for name, symbol in zip(names, symbols, strict=True):
            found.setdefault(name, set()).add(str(symbol.get_attribute("stroke")))
    return found

"""Opens pages in headless Chromium, with the real server in this process."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from browser_tab import Opened, free_port
from headless_browser import headless_chromium

from fleetrank.device_agents.browser.assets import LIBRARIES
from fleetrank.device_agents.browser.place import Place
from fleetrank.device_agents.browser.tab_server import serving
from fleetrank.device_agents.contract.task import OptionValue

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext


@pytest.fixture(scope="session")
def libraries() -> None:
    if not (LIBRARIES / "litert.js").is_file():
        pytest.skip("needs `make browser-assets`")


@pytest.fixture(scope="module")  # two of Playwright's loops cannot share a thread
def chromium(libraries: None) -> "Iterator[Browser]":
    with headless_chromium() as browser:
        yield browser


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


@pytest.fixture
def opened(chromium: "Browser", pool: ThreadPoolExecutor) -> Iterator[Callable[..., Opened]]:
    """Opens a page at a new address and pairs it."""
    contexts = []

    def open_page(context: "BrowserContext | None" = None, place: Place | None = None) -> Opened:
        place = place or Place(listen=f"127.0.0.1:{free_port()}")
        desk = serving(place)
        desk.token = "token-of-this-test"
        context = context or chromium.new_context(ignore_https_errors=True)
        contexts.append(context)
        page = context.new_page()
        page.goto(f"{place.link}#pair={desk.token}")
        page.wait_for_url(place.link)
        assert desk.paired is not None
        options: dict[str, OptionValue] = {
            "listen": place.listen,
            "key_hash": desk.paired[0],
            "engine": desk.paired[1].engine,
        }
        if place.certificate is not None and place.private_key is not None:
            options |= {"certificate": place.certificate, "private_key": place.private_key}
        return Opened(place, desk, page, context, options, pool)

    yield open_page
    for context in contexts:
        context.close()

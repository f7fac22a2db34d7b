"""The server in a real browser: every page, names that try to be markup, a sweep as it runs."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from daily import daily
from fleet_rows import HOSTILE_DEVICE, HOSTILE_MODEL
from headless_browser import headless_chromium
from serving import Served, serving

pytestmark = pytest.mark.browser
if TYPE_CHECKING:
    from playwright import sync_api as playwright

WIDTHS = {"phone": 390, "laptop": 1366, "wide": 2200}
PAGES = {
    "home": "/",
    "report": "/report",
    "devices": "/devices",
    "query": f"/query?sql={quote('SELECT DISTINCT device, model FROM measurements')}",
    "wrong query": f"/query?sql={quote('SELECT <b>')}",
}
PATIENCE_MS = 300_000
"""A server at the lowest priority answers beside other tests; a sweep exports meanwhile."""
CARD = """family = "mobile_cnn"
source = "file"
entry = "{file}"
macs = 1000000
parameters = 1000
"""
SPEC = """name: live
models: [m0, m1]
runtimes: [onnx]
devices: [sim-a, sim-b]
repeats: 2
measure: {min_warmup_s: 0.0, min_runs: 20, max_time_s: 0.5}
"""


@dataclass
class Visit:
    """An open tab and everything it said or asked for."""

    page: "playwright.Page"
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> "Iterator[playwright.Browser]":
    with headless_chromium() as browser:
        yield browser


@pytest.fixture
def visit(browser: "playwright.Browser") -> "Iterator[Visit]":
    context = browser.new_context(viewport={"width": WIDTHS["laptop"], "height": 800})
    context.set_default_timeout(PATIENCE_MS)
    visit = Visit(page=context.new_page())
    visit.page.on("console", lambda message: visit.messages.append(message.text))
    visit.page.on("pageerror", lambda error: visit.messages.append(str(error)))
    visit.page.on("dialog", lambda dialog: visit.messages.append(f"dialog {dialog.message}"))
    visit.page.on("request", lambda request: visit.requests.append(request.url))
    yield visit
    context.close()


@pytest.mark.parametrize("path", daily(PAGES.values(), PAGES["query"]), ids=PAGES.keys())
def test_a_page_opens_without_a_complaint_or_a_foreign_request(
    visit: Visit, served: Served, path: str
) -> None:
    answer = visit.page.goto(served.base + path)
    assert answer is not None
    assert answer.status == 200
    assert visit.messages == []
    assert {url for url in visit.requests if not url.startswith((served.base, "data:"))} == set()
    for width in WIDTHS.values():
        visit.page.set_viewport_size({"width": width, "height": 800})
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_names_are_text(visit: Visit, served: Served) -> None:
    visit.page.goto(served.base + PAGES["query"])
    text = visit.page.locator("main").inner_text()
    assert HOSTILE_DEVICE in text
    assert HOSTILE_MODEL in text
    assert visit.page.locator("main img, main script").count() == 0
    assert visit.messages == []


@pytest.mark.thorough
def test_the_pages_can_be_walked_with_the_keyboard(visit: Visit, served: Served) -> None:
    visit.page.goto(served.base + "/query")
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    visit.page.keyboard.press("Tab")
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.textContent") == "Report"
    assert visit.page.locator("nav a[aria-current=page]").inner_text() == "SQL"


@pytest.fixture
def live_workspace(tmp_path: Path, onnx_file: Path) -> Path:
    root = tmp_path / "ws"
    for name in ("cards", "devices", "sweeps"):
        (root / name).mkdir(parents=True)
    (root / "cluster.yaml").write_text("cluster_name: t\n")
    for number in range(2):
        (root / "cards" / f"m{number}.toml").write_text(CARD.format(file=onnx_file))
    # The page asks every 2 s: 2 models and 2 repeats of 2 s each last for several such looks.
    for name in ("sim-a", "sim-b"):
        text = f"name: {name}\nkind: simulated\noptions: {{duration_s: 2.0}}\n"
        (root / "devices" / f"{name}.yaml").write_text(text)
    (root / "sweeps" / "live.yaml").write_text(SPEC)
    return root


@pytest.mark.thorough
def test_a_sweep_appears_while_it_runs_and_its_report_after_it(
    visit: Visit, live_workspace: Path
) -> None:
    page = visit.page
    command = "from fleetrank.orchestrator.cli.main import main; main()"
    run = [sys.executable, "-P", "-c", command, "sweep", "run", "live", "--inline"]
    with serving(live_workspace) as server:
        page.goto(server.base + "/?include_simulated=true")
        page.frame_locator("#report").get_by_text("No report yet").wait_for()
        with subprocess.Popen(run, cwd=live_workspace, stdout=subprocess.DEVNULL) as sweep:
            page.locator(".state.running").wait_for()
            page.locator(".devices li", has_text="sim-a").wait_for()
            # Of 2 models and 2 repeats; the number grows under the reader's eyes.
            page.locator(".devices li", has_text="of 4").first.wait_for()
            page.locator(".latest summary").click()
            page.locator(".latest tbody tr").first.wait_for()
            assert page.locator(".latest tbody tr").first.locator("td").nth(1).inner_text() in {
                "sim-a", "sim-b",
            }  # fmt: skip
            assert sweep.wait(PATIENCE_MS / 1000) == 0
        page.locator(".state.finished").wait_for()
        page.frame_locator("#report").locator("#table-matrix").wait_for()
        banner = page.frame_locator("#report").get_by_role("alert")
        assert "real devices" in banner.inner_text()
    # The server is gone: the page says so and stays.
    page.get_by_text("The server does not answer.").wait_for()
    assert page.locator(".state.finished").count() == 1

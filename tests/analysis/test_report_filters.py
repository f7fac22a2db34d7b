"""Filters, tables and copying in a real browser, by mouse, keyboard and address."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import polars as pl
import pytest
from fleet_rows import HOSTILE_DEVICE, HOSTILE_MODEL, NETS, Place, hostile_results, write_results
from headless_browser import unfold
from stored_part import write_part

from fleetrank.analysis.report.page import build_report

pytestmark = [pytest.mark.browser, pytest.mark.thorough]
if TYPE_CHECKING:
    from playwright import sync_api as playwright


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of five platforms, two of them int8."""
    folder = tmp_path_factory.mktemp("filters")
    results = hostile_results(folder / "results")
    part = next((results / "measurements").rglob("*.parquet"))
    frame = pl.read_parquet(part)
    is_int8 = pl.col("runtime") == "tflite"
    precision = pl.when(is_int8).then(pl.lit("int8")).otherwise("precision").alias("precision")
    frame.with_columns(precision).pipe(write_part, part)
    return build_report(results, folder / "report.html").path.as_uri()


@pytest.fixture(scope="module")
def context(browser: "playwright.Browser") -> "playwright.BrowserContext":
    return browser.new_context(permissions=["clipboard-read", "clipboard-write"])


@pytest.fixture
def page(context: "playwright.BrowserContext") -> "Iterator[playwright.Page]":
    """A page that must not have complained by the end of the test."""
    page, messages = context.new_page(), []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("dialog", lambda dialog: messages.append(f"dialog {dialog.message}"))
    yield page
    page.close()
    assert messages == []


def _open(page: "playwright.Page", url: str, **chosen: str | list[str]) -> None:
    """Opens the page anew; charts may still be drawn, all else is there."""
    page.goto("about:blank")
    page.goto(url + ("#" + urlencode(chosen, doseq=True) if chosen else ""))
    unfold(page)


def _wait(page: "playwright.Page") -> None:
    unfold(page)


def _titles(page: "playwright.Page", kind: str) -> list[str]:
    return page.locator(f"[data-charts={kind}] figcaption strong").all_text_contents()


def _labels(page: "playwright.Page", chart: str) -> list[str]:
    return page.locator(f"#{chart} svg text").all_text_contents()


def _rows(page: "playwright.Page", table: str) -> list[str]:
    page.locator(f"#table-{table}").evaluate(
        "t => { const d = t.closest('details'); if (d) d.open = true; }"
    )
    page.wait_for_timeout(50)
    rows = page.locator(f"#table-{table} tbody tr:not([hidden])")
    return [" | ".join(row.locator("th,td").all_text_contents()) for row in rows.all()]


@pytest.mark.parametrize(
    ("chosen", "platforms", "models"),
    [
        ({"tier": "cpu"}, 2, 14),
        ({"device": "pixel-7"}, 2, 14),
        ({"runtime": "onnx"}, 3, 14),
        ({"precision": "int8"}, 2, 14),
        ({"family": "transformer"}, 5, 2),
        ({"model": ["resnet18", "resnet50"]}, 5, 2),
        ({"tier": "edge", "family": "hybrid"}, 3, 3),
    ],
)
def test_every_filter_acts_on_all_plots_and_tables(
    page: "playwright.Page",
    report: str,
    chosen: dict[str, str | list[str]],
    platforms: int,
    models: int,
) -> None:
    _open(page, report, **chosen)
    told = page.locator("#shown").inner_text()
    assert told == f"Showing {platforms} of 5 platforms, {models} of 14 models."
    for kind in ("latency", "memory", "flops"):
        assert len(_titles(page, kind)) == platforms
    for table in ("latency", "scaling-memory", "latency-coldstart"):
        assert len(_rows(page, table)) == platforms * models
    assert page.locator("p.overall").first.is_visible()


def test_pairs_are_shown_where_both_sides_are(page: "playwright.Page", report: str) -> None:
    _open(page, report, device="pixel-7")
    assert len(_titles(page, "frontier")) == 2
    _wait(page)
    labels = _labels(page, "transfer-1")
    assert {
        "pixel-7, onnx",
        "pixel-7, tflite",
    } <= set(labels)
    assert not [label for label in labels if label.startswith("cpu-")]
    assert all(row.count("pixel-7") == 2 for row in _rows(page, "frontier")[1:])


def test_a_frontier_is_shown_from_one_s_own_source_to_one_s_own_target(
    page: "playwright.Page", report: str
) -> None:
    _open(page, report)
    assert len(_titles(page, "frontier")) == 4
    source, target = "pixel-7, onnx", "cpu-3fa2c1, tflite"
    for label, name in (("Source", source), ("Target", target)):
        select = page.locator("#frontier").get_by_label(label, exact=True)
        options = select.locator("option").all_text_contents()
        select.select_option(label=next(text for text in options if text.startswith(name)))
    (title,) = _titles(page, "frontier")
    assert title.startswith(source)
    assert f"\N{RIGHTWARDS ARROW} {target}" in title


def test_statistics_over_models_are_marked_and_not_made_anew(
    page: "playwright.Page", report: str
) -> None:
    _open(page, report)
    _wait(page)
    before = _labels(page, "transfer-1")
    ranks = page.locator("[data-charts=flops] figcaption").first.inner_text()
    _open(page, report, family="mobile_cnn")
    _wait(page)
    assert _labels(page, "transfer-1") == before
    assert page.locator("#latency-1 svg g.mark-symbol path").count() == 4
    after = page.locator("[data-charts=flops] figcaption").first.inner_text()
    assert "ranks are among 14" in after
    assert "ranks are among" not in ranks
    for section in ("transfer", "frontier", "flops"):
        assert page.locator(f"#{section} > p.overall").is_visible()


def test_the_keyboard_sets_a_filter_and_the_address_keeps_it(
    page: "playwright.Page", report: str
) -> None:
    _open(page, report)
    page.locator("[data-pick=tier] summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    first = page.locator("[data-pick=tier] label").first.inner_text().strip()
    assert page.url.endswith(f"#tier={first}")
    assert page.locator("[data-pick=tier] summary b").inner_text() == first
    page.keyboard.press("Escape")
    assert page.locator("[data-pick=tier][open]").count() == 0
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.reload()
    assert page.locator("[data-pick=tier] summary b").inner_text() == first


def test_the_first_tab_stop_leads_past_the_controls(page: "playwright.Page", report: str) -> None:
    _open(page, report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the answer"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "answer"


@pytest.mark.parametrize(("name", "value"), [("device", HOSTILE_DEVICE), ("model", HOSTILE_MODEL)])
def test_a_hostile_name_is_text_in_filter_and_address(
    page: "playwright.Page", report: str, name: str, value: str
) -> None:
    _open(page, report)
    page.locator(f"[data-pick={name}] summary").click()
    page.locator(f"[data-pick={name}] label", has_text=value).locator("input").check()
    assert page.locator(f"[data-pick={name}] summary b").inner_text() == value
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    _wait(page)
    assert page.locator(f"[data-pick={name}] summary b").inner_text() == value
    assert page.locator("main img, main script").count() == 0


def test_what_the_address_names_in_vain_is_said_as_text(
    page: "playwright.Page", report: str
) -> None:
    _open(page, report, device="<img src=x onerror=alert(1)>", colour="red")
    told = page.locator("#shown").inner_text()
    assert "Not on this page: <img src=x onerror=alert(1)>." in told
    assert told.startswith("Showing 5 of 5 platforms")


def test_more_platforms_are_drawn_when_asked(page: "playwright.Page", tmp_path: Path) -> None:
    places = [
        Place(device=f"phone-{number}", tier="edge", runtime="onnx", gflops=9)
        for number in range(8)
    ]
    results = write_results(tmp_path / "r", nets=NETS[:5], places=places, repeats=1, n_samples=5)
    _open(page, build_report(results, tmp_path / "report.html").path.as_uri())
    assert len(_titles(page, "latency")) == 6
    assert "6 of 8 platforms are drawn" in page.locator("[data-more=latency]").inner_text()
    page.locator("[data-more=latency] button").click()
    assert len(_titles(page, "latency")) == 8
    assert page.locator("[data-more=latency]").inner_text() == ""

"""The page's section on ways to read a long text: only where segments were measured."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from headless_browser import legend_colours, unfold
from language_rows import DECODERS, MACHINES, write_language_results
from stored_part import write_part

from fleetrank.analysis.report.evidence import Evidence, gather
from fleetrank.analysis.report.page import build_report
from fleetrank.analysis.report.page_tables import PageTables, page_tables
from fleetrank.analysis.report.reading_points import reading_groups
from fleetrank.analysis.stored.selection import Selection

if TYPE_CHECKING:
    from playwright import sync_api as playwright

pytestmark = pytest.mark.slow

PROMPTS = ("prefill@128", "prefill@512", "prefill@2048")
SEGMENTS = ("segment@128+k8+n16", "segment@128+k8+n0")
CHOSEN = Selection(workload="prefill@128")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reading")
    return write_language_results(
        folder, decoders=DECODERS[:3], machines=MACHINES[:2], workloads=[*PROMPTS, *SEGMENTS]
    )


@pytest.fixture(scope="module")
def made(results: Path) -> tuple[Evidence, PageTables]:
    evidence = gather(results, CHOSEN)
    return evidence, page_tables(evidence)


@pytest.mark.thorough
def test_a_group_has_every_way_of_one_model_on_one_platform(
    made: tuple[Evidence, PageTables],
) -> None:
    evidence, tables = made
    groups = reading_groups(evidence, tables)
    assert len(groups) == 3 * 2
    for group in groups:
        rows = group["rows"]
        assert isinstance(rows, list)
        ways = {way for way, *_ in rows}
        assert {"vanilla", "window 128, stride 64", *SEGMENTS} <= ways
        assert {tokens for _, tokens, _ in rows} == {128, 512, 2048}


@pytest.mark.thorough
def test_a_model_without_the_workload_of_the_page_is_drawn_too(tmp_path: Path) -> None:
    results = write_language_results(
        tmp_path, decoders=DECODERS[:2], machines=MACHINES[:1], workloads=[*PROMPTS, *SEGMENTS]
    )
    part = next((results / "measurements").rglob("*.parquet"))
    frame = pl.read_parquet(part)
    without = frame["model"][0]
    is_left_out = (pl.col("model") == without) & (pl.col("workload") == "prefill@128")
    frame.filter(~is_left_out).pipe(write_part, part)
    evidence = gather(results, CHOSEN)
    groups = reading_groups(evidence, page_tables(evidence))
    assert sorted(str(one["model"]) for one in groups) == ["0", "None"]


@pytest.mark.browser
@pytest.mark.thorough
def test_the_chart_is_drawn_with_its_crossovers(
    browser: "playwright.Browser", results: Path, tmp_path: Path
) -> None:
    copied = shutil.copytree(results, tmp_path / "results")
    part = next((copied / "measurements").rglob("*.parquet"))
    frame = pl.read_parquet(part)
    # One model lacks the first way of the others: its panel starts with another one.
    lacks = (pl.col("model") == DECODERS[0].name) & (pl.col("workload") == PROMPTS[0])
    frame.filter(~lacks).pipe(write_part, part)
    page = tmp_path / "page.html"
    build_report(copied, page, selection=CHOSEN)
    view = browser.new_page(viewport={"width": 1280, "height": 900})
    errors: list[str] = []
    view.on("pageerror", lambda error: errors.append(str(error)))
    view.goto(page.as_uri())
    unfold(view)
    assert view.locator("#reading .chart svg").count() == 6
    labels = [
        str(chart.get_attribute("aria-label")) for chart in view.locator("#reading .chart").all()
    ]
    assert any("segment@128+k8+n16 from" in label for label in labels)
    assert view.locator("#reading .chart svg .mark-rule line").count() > 0
    colours = legend_colours(view, "#reading")
    assert len(colours) > 3
    assert {len(of_way) for of_way in colours.values()} == {1}
    assert errors == []

"""The page's sections on growth and on sustained runs: only where such rows exist."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from fleet_rows import NETS, PLACES, write_results
from growth_rows import with_growth
from headless_browser import legend_colours, unfold
from stored_part import write_part

from fleetrank.analysis.report.evidence import Evidence, gather
from fleetrank.analysis.report.growth_points import curve_groups
from fleetrank.analysis.report.page import build_report
from fleetrank.analysis.report.page_tables import page_tables
from fleetrank.analysis.stored.selection import Selection

if TYPE_CHECKING:
    from playwright import sync_api as playwright

pytestmark = pytest.mark.slow


def _growing(results: Path) -> Path:
    """Every model at several batches and sizes; the largest batch ran out of memory."""
    part = next((results / "measurements").rglob("*.parquet"))
    frame = with_growth(pl.read_parquet(part).lazy()).collect()
    is_large = pl.col("batch") == 4
    failed = {"status": "failed", "error_kind": "out_of_memory", "latency_p50_ns": None}
    frame.with_columns(
        pl.when(is_large).then(pl.lit(value, dtype=frame.schema[name])).otherwise(name).alias(name)
        for name, value in failed.items()
    ).pipe(write_part, part)
    return results


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("growth") / "results"
    return _growing(write_results(folder, nets=NETS[:6], places=PLACES[:2], repeats=1))


@pytest.fixture(scope="module")
def evidence(growing: Path) -> Evidence:
    return gather(growing, Selection())


@pytest.mark.thorough
def test_a_group_has_a_row_for_each_measured_point_and_names_the_ends(evidence: Evidence) -> None:
    groups = curve_groups(evidence, page_tables(evidence))
    over = {one["over"] for one in groups}
    assert {"batch", "input_size"} <= over
    (first, *_) = [one for one in groups if one["over"] == "batch"]
    rows = first["rows"]
    assert isinstance(rows, list)
    assert {value for _, value, *_ in rows} == {1, 2}
    assert len(rows) == 2 * len(evidence.shown.models)
    assert "out of memory at 4: " in str(first["ends"])


@pytest.mark.browser
@pytest.mark.thorough
def test_the_charts_are_drawn_and_their_choices_work(
    browser: "playwright.Browser", growing: Path, tmp_path: Path
) -> None:
    results = shutil.copytree(growing, tmp_path / "results")
    part = next((results / "measurements").rglob("*.parquet"))
    frame = pl.read_parquet(part)
    # The first model lacks the batches: its panels start with another one.
    lacks = (pl.col("model") == frame["model"].min()) & (pl.col("batch") > 1)
    frame.filter(~lacks).pipe(write_part, part)
    page = tmp_path / "page.html"
    build_report(results, page)
    view = browser.new_page(viewport={"width": 1280, "height": 900})
    errors: list[str] = []
    view.on("pageerror", lambda error: errors.append(str(error)))
    view.goto(page.as_uri())
    unfold(view)
    assert view.locator("#scaling .chart svg").count() > 0
    assert " groups of curves " in view.locator("[data-more=scaling]").inner_text()
    assert view.locator("#sustained .chart svg").count() > 0
    colours = legend_colours(view, "#scaling", "#sustained")
    assert len(colours) > 3
    assert {len(of_model) for of_model in colours.values()} == {1}
    captions = view.locator("#scaling figcaption").all_inner_texts()
    assert any("out of memory at 4: " in one for one in captions)
    assert any("over input size" in one for one in captions)
    view.locator("#scaling button", has_text="rate").click()
    unfold(view)
    label = view.locator("#scaling .chart").first.get_attribute("aria-label")
    assert "samples per second" in str(label)
    assert errors == []

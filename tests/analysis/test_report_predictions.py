"""Predicted latencies on the page: marked, only on request, and nowhere else."""

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from fleet_rows import write_results
from stored_part import write_part

from fleetrank.analysis.report.evidence import Evidence, gather
from fleetrank.analysis.report.page import render_page
from fleetrank.analysis.report.page_data import page_data
from fleetrank.analysis.report.page_tables import PREDICTED_LEAD, PageTables, page_tables
from fleetrank.analysis.stored.selection import Selection

pytestmark = pytest.mark.slow
HIDDEN = ("resnet50", "vgg16", "deit_tiny", "mobilevit_xxs", "squeezenet1_1")
DEVICE = "pixel-7"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The phone lacks some models."""
    folder = write_results(tmp_path_factory.mktemp("predicted") / "results", n_samples=5)
    part = next((folder / "measurements").rglob("*.parquet"))
    is_hidden = (pl.col("device") == DEVICE) & pl.col("model").is_in(HIDDEN)
    pl.read_parquet(part).filter(~is_hidden).pipe(write_part, part)
    return folder


@pytest.fixture(scope="module")
def made(results: Path) -> tuple[Evidence, PageTables]:
    evidence = gather(results, Selection())
    return evidence, page_tables(evidence, is_predicted=True)


@pytest.mark.thorough
def test_a_page_has_predictions_only_if_it_was_asked_for_them(
    made: tuple[Evidence, PageTables],
) -> None:
    evidence, asked = made
    now = datetime(2026, 11, 22, tzinfo=UTC)
    plain, predicted = (
        render_page(evidence, now, tables) for tables in (page_tables(evidence), asked)
    )
    assert PREDICTED_LEAD not in plain
    assert PREDICTED_LEAD in predicted
    assert "PREDICTED:" in predicted


@pytest.mark.thorough
def test_the_charts_have_a_point_for_each_model_that_a_platform_lacks(
    made: tuple[Evidence, PageTables],
) -> None:
    data = page_data(*made)
    points = json.loads(json.dumps(data["predicted"]))
    platforms = [row["key"] for row in data["platforms"]]  # type: ignore[attr-defined]
    models = [row["name"] for row in data["models"]]  # type: ignore[attr-defined]
    seen = {(platforms[p], models[m]) for p, m in zip(points["p"], points["m"], strict=True)}
    lacking = set(HIDDEN) & set(models)
    keys = [key for key in platforms if key.startswith(DEVICE)]
    assert seen == {(key, model) for key in keys for model in lacking}
    assert all(
        low is None or low < ms < high
        for low, ms, high in zip(points["low_ms"], points["ms"], points["high_ms"], strict=True)
    )
    measured = data["cells"]
    assert not seen & {
        (platforms[p], models[m])
        for p, m in zip(measured["p"], measured["m"], strict=True)  # type: ignore[index]
    }

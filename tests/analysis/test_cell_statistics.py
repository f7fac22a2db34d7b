"""Each latency is printed with its statistic: in the table, its exports and the page's data."""

import json
from pathlib import Path

import polars as pl
import pytest
from fleet_rows import write_results

from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.formats import render
from fleetrank.analysis.tables.tables import make_table

pytestmark = pytest.mark.slow


def test_a_table_and_its_exports_name_statistic_and_placement(make_attempts) -> None:
    facts = {"statistic": "minimum", "backend_nodes": 54, "graph_nodes": 65}
    rows = make_attempts([{"latency_p50_ns": 2e6, **facts}, {"model": "b", "latency_p50_ns": 3e6}])
    table = make_table("latency", rows, Selection())
    assert table.frame.select("statistic", "placement").rows() == [
        ("minimum", "54/65"), (None, None),
    ]  # fmt: skip
    assert json.loads(render(table, "json"))["rows"][0]["statistic"] == "minimum"
    assert "minimum" in render(table, "csv")


def test_rows_from_before_the_column_are_medians(tmp_path: Path) -> None:
    results = write_results(tmp_path / "results", repeats=1)
    (part,) = results.glob("measurements/*/part-*.parquet")
    rows = pl.read_parquet(part)
    assert "statistic" not in rows.columns or rows["statistic"].null_count() == rows.height
    ok = load_measurements(results).filter(pl.col("status") == "ok").collect()
    assert set(ok["statistic"]) == {"median"}

"""Each latency is printed with its statistic: in the table, its exports and the page's data."""

import json
from pathlib import Path

import polars as pl
import pytest
from fleet_rows import NETS, write_results
from stored_part import write_part

from fleetrank.analysis.report.page_data import page_data
from fleetrank.analysis.report.page_tables import gather, page_tables
from fleetrank.analysis.report.sections import page_sections
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


def _with_minimum(results: Path) -> Path:
    """One platform's rows become imported ones of a vendor."""
    (part,) = results.glob("measurements/*/part-*.parquet")
    rows = pl.read_parquet(part)
    first = pl.col("platform_key") == rows["platform_key"].sort()[0]
    word = pl.when(first).then(pl.lit("minimum"))
    rows.with_columns(word.alias("statistic")).pipe(write_part, part)
    return results


@pytest.mark.thorough
def test_the_page_names_the_statistic_of_every_platform(tmp_path: Path) -> None:
    results = _with_minimum(write_results(tmp_path / "results", nets=NETS[:4], repeats=2))
    evidence = gather(results, Selection())
    tables = page_tables(evidence)
    data = json.loads(json.dumps(page_data(evidence, tables)))
    found = {one["key"]: one["statistic"] for one in data["platforms"]}
    assert set(found.values()) == {"median", "minimum"}
    assert found[min(found)] == "minimum"
    (*_, provenance) = page_sections(evidence, tables)
    platforms = next(one for one in provenance.tables if one.caption.startswith("Platforms"))
    assert "minimum" in str(platforms.rows)


def test_rows_from_before_the_column_are_medians(tmp_path: Path) -> None:
    results = write_results(tmp_path / "results", repeats=1)
    (part,) = results.glob("measurements/*/part-*.parquet")
    rows = pl.read_parquet(part)
    assert "statistic" not in rows.columns or rows["statistic"].null_count() == rows.height
    ok = load_measurements(results).filter(pl.col("status") == "ok").collect()
    assert set(ok["statistic"]) == {"median"}

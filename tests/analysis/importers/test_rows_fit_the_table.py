"""What every importer owes the table: its columns, its words, its types."""

from pathlib import Path

import polars as pl
import pytest

from fleetrank.analysis.importers.qai_hub import parse_qai_hub
from fleetrank.analysis.importers.release import Release, drop_reason
from fleetrank.analysis.importers.timm import parse_timm
from fleetrank.analysis.stored.columns import COLUMNS, SCHEMA

DATA = Path(__file__).parents[2] / "data"


def _files(source: str) -> dict[str, bytes]:
    folder = DATA / source
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*.*")
        if path.suffix in {".csv", ".yaml"}
    }


RELEASES = [*parse_timm(_files("timm")), *parse_qai_hub(_files("qai_hub"))]


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_columns_and_types_are_the_tables(release: Release) -> None:
    frame = pl.DataFrame(list(release.rows), schema=None, infer_schema_length=None)
    assert set(frame.columns) <= set(SCHEMA)
    pl.DataFrame([dict.fromkeys(SCHEMA) | row for row in release.rows], schema=SCHEMA)


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_words_of_closed_columns_are_known(release: Release) -> None:
    for column in COLUMNS:
        if column.values is not None:
            used = {row.get(column.name) for row in release.rows} - {None}
            assert used <= set(column.values), column.name


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_a_row_counts_exactly_when_it_has_a_latency(release: Release) -> None:
    for row in release.rows:
        latency = row["latency_p50_ns"]
        assert (latency is None) == (drop_reason(row) is not None)
        assert latency is None or latency > 0
        assert row["source_ref"]
        assert row["licence"]
        assert row["derived"]


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_every_row_states_what_its_latency_is(release: Release) -> None:
    expected = {"timm": "mean", "qai-hub": "minimum"}[release.source]
    assert {row["statistic"] for row in release.rows} == {expected}

"""The page's section about the host: only where models took turns."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from fleet_rows import NETS, part_in, with_rounds, write_results
from stored_part import write_part

from fleetrank.analysis.report.evidence import Evidence, gather
from fleetrank.analysis.report.page_tables import page_tables
from fleetrank.analysis.report.rank_points import rank_series
from fleetrank.analysis.report.sections import page_sections
from fleetrank.analysis.stored.selection import Selection

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("host") / "results"
    return with_rounds(write_results(folder, nets=NETS[:5]))


@pytest.fixture(scope="module")
def evidence(rounds: Path) -> Evidence:
    return gather(rounds, Selection())


def test_rounds_are_a_table_of_the_page(evidence: Evidence) -> None:
    (section,) = [one for one in page_sections(evidence, page_tables(evidence)) if one.id == "host"]
    assert [table.id for table in section.tables] == ["trust-host"]


def with_waits(results: Path) -> Path:
    """One attempt waited a minute; the others did not, or do not say it."""
    part = part_in(results)
    frame = pl.read_parquet(part)
    waits = [60.0, 0.2, None] + [0.0] * (frame.height - 3)
    frame.with_columns(pl.Series("waited_s", waits, pl.Float64)).pipe(write_part, part)
    return results


def test_waits_are_on_the_page_if_there_were_any(tmp_path: Path) -> None:
    evidence = gather(with_waits(write_results(tmp_path / "waits", nets=NETS[:3])), Selection())
    tables = page_tables(evidence)
    ids = [one.id for one in page_sections(evidence, tables)]
    assert (ids.count("host"), ids.count("waits")) == (0, 1)
    shown = tables["trust/waits"].frame
    assert (shown["waited_s"].sum(), shown["n_waited"].sum()) == (60.0, 1)
    assert shown["longest_s"][0] == 60.0
    everything = pl.read_parquet(tmp_path / "waits" / "measurements")
    assert shown["n_attempts"].sum() == everything["waited_s"].is_not_null().sum()


def test_charts_of_ranks_use_the_latency_without_the_host(evidence: Evidence) -> None:
    both = evidence.cells.join(evidence.ranked, on=("model", "platform_key"), suffix="_ranked")
    differs = pl.col("latency_ns") != pl.col("latency_ns_ranked")
    assert set(both.filter(differs)["tier"]) == {"cpu"}


@pytest.mark.thorough
def test_both_sets_of_ranks_are_of_the_same_processes(restless: Path) -> None:
    (series,) = rank_series(gather(restless, Selection()))
    rows = series["rows"]
    assert isinstance(rows, list)
    widths = np.array([[high - low for _, low, high in sets] for _, *sets in rows])
    assert len(rows) == 13
    assert widths[:, 1].mean() < 0.7 * widths[:, 0].mean()


@pytest.fixture(scope="module")
def restless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rounds of all models of one platform; the host is up to 30 % slower in some of them."""
    results = with_rounds(write_results(tmp_path_factory.mktemp("restless") / "results"))
    part = part_in(results)
    frame = pl.read_parquet(part)
    first = frame.filter(pl.col("tier") == "cpu")["platform_key"].min()
    took_turns = pl.col("platform_key") == first
    slower = 1 + 0.06 * pl.col("repeat")
    latency = pl.col("latency_p50_ns") * slower
    medians = pl.concat_list([latency.round().cast(pl.Int64)] * 4)
    frame.with_columns(
        pl.when(took_turns).then(latency).otherwise("latency_p50_ns").alias("latency_p50_ns"),
        pl.when(took_turns).then(medians).alias("block_medians_ns"),
        *(pl.when(took_turns).then(name).alias(name) for name in ("round_id", "block_starts_ns")),
    ).pipe(write_part, part)
    return results

"""Platforms of unlike batch are compared from tier to tier on request only, and marked."""

from collections.abc import Callable

import polars as pl
import pytest
from growth_rows import OF_PRECISIONS, OF_READING, OF_SIDE_ROWS, OF_SWEEPS
from language_rows import OF_TOKENS
from scipy import stats
from shared_tables import NAMES
from wording import has

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.tables import make_table, session_table

pytestmark = pytest.mark.slow

GPU = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
CPU = [2.0, 1.0, 3.0, 5.0, 4.0, 6.0]
OTHER = [1.0, 3.0, 2.0, 4.0, 6.0, 5.0]
_FIGURES = {"accuracy": range(60, 66), "flops": range(1, 7), "memory": range(1, 7)}
OF_OTHERS = {
    *OF_SIDE_ROWS, *OF_TOKENS, *OF_READING, *OF_PRECISIONS, *OF_SWEEPS, "latency/training",
    "scaling/sustained",
}  # fmt: skip
"""Tables that need tokens, training, profiles, evaluations, sustained runs, sets or sweeps."""
NAMES = sorted(set(NAMES) - OF_OTHERS)
UNLIKE = Selection(allow_unlike_batch=True)


@pytest.fixture
def frame(make_grid: Callable[..., pl.LazyFrame]) -> pl.LazyFrame:
    """One GPU at batch 64 and two CPUs at batch 1, one of which was also measured at batch 8."""
    series = {"g": GPU, "c": CPU, "o": OTHER}
    facts = {"g": {"tier": "gpu", "batch": 64}}
    more = make_grid({"o": GPU}, o={"batch": 8}, **_FIGURES)
    grid = make_grid(series, **facts, **_FIGURES)
    return pl.concat([grid, more])


def tier_rows(frame: pl.LazyFrame, name: str, selection: Selection) -> list[dict[str, object]]:
    return of_tiers(make_table(name, frame, selection))


def of_tiers(table: Table) -> list[dict[str, object]]:
    rows = table.frame
    has_tiers = {"level", "source"} <= set(rows.columns)
    return rows.filter(pl.col("level") == "tier").to_dicts() if has_tiers else []


def test_tiers_without_equal_batch_are_compared_on_request_and_marked(frame: pl.LazyFrame) -> None:
    latency = [row for row in tier_rows(frame, "transfer", UNLIKE) if row["measure"] == "latency"]
    between = {(str(row["source"]), str(row["target"])): row for row in latency}
    row = between["gpu", "cpu"]
    # o has two platforms: the mean is inside its pair of device models first.
    first, second, third = (stats.spearmanr(GPU, other)[0] for other in (CPU, OTHER, GPU))
    assert row["rho"] == pytest.approx((first + (second + third) / 2) / 2)
    assert (row["n_pairs"], row["n_clusters"]) == (3, 2)
    assert (row["batch"], row["target_batch"]) == ("64", "1, 8")
    assert between["cpu", "cpu"]["n_pairs"] == 2
    notes = make_table("transfer", frame, UNLIKE).notes
    assert has(notes, "UNLIKE BATCHES", "cpu 1, 8", "gpu 64")
    assert has(make_table("transfer", frame, UNLIKE).explanation, "batch, target_batch", "any")


def test_a_pair_has_the_batches_of_its_platforms(frame: pl.LazyFrame) -> None:
    table = make_table("transfer", frame, UNLIKE).frame
    for row in table.filter(pl.col("level") == "pair").to_dicts():
        assert f"/b{row['batch']}/" in row["source"]
        assert f"/b{row['target_batch']}/" in row["target"]


@pytest.mark.thorough
def test_every_table_takes_the_request_and_compares_nothing_without_it(
    frame: pl.LazyFrame, subtests: pytest.Subtests
) -> None:
    of_request, without = Session(frame, UNLIKE), Session(frame, Selection())
    for name in NAMES:
        with subtests.test(name):
            marked = session_table(name, of_request)
            plain = session_table(name, without)
            assert "target_batch" not in plain.frame.columns
            assert not has(plain.notes, "UNLIKE BATCHES")
            tiers = {(row["source"], row["target"]) for row in of_tiers(plain)}
            assert tiers <= {("cpu", "cpu")}
            columns, given = list(marked.frame.columns), set(plain.frame.columns)
            added = {"batch", "target_batch"} - given
            has_sides = {"source", "target"} <= given
            assert set(columns) == given | (added if has_sides else set())
            if has_sides:
                place = columns.index("target")
                assert columns[place + 1 : place + 3] == ["batch", "target_batch"]


def test_equal_batches_give_no_warning(make_grid: Callable[..., pl.LazyFrame]) -> None:
    session = Session(make_grid({"a": GPU, "b": CPU}), UNLIKE)
    assert not has(session.panel.notes, "UNLIKE BATCHES")


def test_a_session_without_the_request_does_not_share_the_panel(frame: pl.LazyFrame) -> None:
    session = Session(frame, UNLIKE)
    assert session.panel.allows_unlike_batch
    assert not session.asked(Selection()).panel.allows_unlike_batch

"""Only the models that fit: what a limit keeps, drops and says."""

from collections.abc import Callable

import polars as pl
import pytest
from wording import has

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

MIB = 2**20
LATENCY = [1e6, 2e6, 3e6, 4e6, 5e6, 6e6]


@pytest.fixture
def frame(make_grid: Callable[..., pl.LazyFrame]) -> pl.LazyFrame:
    """m3 needs one byte more than 10 MiB on d2; nothing is known of m4, and 0 means the same."""
    every = {
        "d1": [5 * MIB] * 6,
        "d2": [5 * MIB, 5 * MIB, 10 * MIB, 10 * MIB + 1, None, 0],
    }
    return pl.concat(
        make_grid({device: LATENCY}, memory=memory, accuracy=range(60, 66), flops=range(1, 7))
        for device, memory in every.items()
    )


def test_a_model_is_kept_where_it_fits(frame: pl.LazyFrame) -> None:
    scope = Session(frame, Selection(max_memory_mib=10)).cells
    kept = scope.cells.group_by("device").agg(pl.col("model").sort())
    assert dict(kept.iter_rows()) == {
        "d1": ["m0", "m1", "m2", "m3", "m4", "m5"], "d2": ["m0", "m1", "m2"],
    }  # fmt: skip
    assert has(scope.notes, "10 MiB", "1 row above", "2 rows without")
    assert has(scope.notes, "9 of 9")


@pytest.mark.slow
def test_a_frontier_has_only_models_that_fit_on_both_sides(frame: pl.LazyFrame) -> None:
    table = make_table("frontier", frame, Selection(max_memory_mib=10)).frame
    assert set(table.filter(pl.col("level") == "pair")["n_models"]) == {3}


def test_no_model_that_fits_is_an_error(frame: pl.LazyFrame) -> None:
    with pytest.raises(NoDataError, match="fits into 4 MiB") as caught:
        make_table("latency", frame, Selection(max_memory_mib=4))
    assert has([caught.value.message], "10 rows above", "2 rows without")


def test_sessions_with_other_limits_do_not_share_rows(frame: pl.LazyFrame) -> None:
    session = Session(frame, Selection(max_memory_mib=10))
    assert session.cells.cells.height == 9
    assert session.asked(Selection()).cells.cells.height == 12

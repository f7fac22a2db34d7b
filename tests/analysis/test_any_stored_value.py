"""Whatever figures are stored, every table and the page can be made."""

import contextlib
import random
from pathlib import Path

import polars as pl
import pytest
from fleet_rows import NETS, PLACES, write_results
from stored_part import write_part

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.page import build_report
from fleetrank.analysis.stored.columns import LARGEST, SCHEMA, SMALLEST
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import REQUESTS, session_table

pytestmark = pytest.mark.slow


FLOATS = (1e300, 1.7976931348623157e308, -1e300, 1e-300, 5e-324, 0.0, -0.0, 1e15, -1e15, 1e-18)
KEPT = {"repeat", "attempt", "schema_version"}
INTEGERS = (2**63 - 1, -(2**63), 2**62, 10**17, 10**15, 1, 0)


def one_in(every: int, column: pl.Series, chance: random.Random) -> pl.Series:
    """The column, with an extreme figure in place of one in so many."""
    figures = FLOATS if column.dtype == pl.Float64 else INTEGERS
    is_list = isinstance(column.dtype, pl.List)
    values = [
        value
        if chance.randrange(every)
        else [chance.choice(figures) for _ in range(20)]
        if is_list
        else chance.choice(figures)
        for value in column.to_list()
    ]
    return pl.Series(column.name, values, dtype=column.dtype)


def extreme_results(folder: Path, every: int) -> Path:
    results = write_results(folder, nets=NETS[:9], places=PLACES[:5], n_samples=20)
    (part,) = results.glob("measurements/*/*.parquet")
    frame = pl.read_parquet(part, hive_partitioning=False)
    chance = random.Random(every)
    kinds = (pl.Float64(), pl.Int64(), pl.List(pl.Int64))
    names = [name for name, dtype in SCHEMA.items() if dtype in kinds and name not in KEPT]
    figures = [one_in(every, frame[name], chance) for name in names]
    frame.with_columns(*figures).pipe(write_part, part)
    return results


def test_a_figure_that_cannot_be_is_missing(tmp_path: Path) -> None:
    frame = load_measurements(extreme_results(tmp_path, 1)).collect()
    sizes = frame["energy_mj"].drop_nulls().abs()
    assert 0 < len(sizes) < len(frame)
    assert (sizes.is_between(SMALLEST, LARGEST) | (sizes == 0)).all()


@pytest.mark.thorough
@pytest.mark.parametrize("every", [30, pytest.param(2, marks=pytest.mark.thorough)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_table_and_the_page_survive_any_figure(tmp_path: Path, every: int) -> None:
    results = extreme_results(tmp_path, every)
    session = Session(load_measurements(results), Selection())
    for request in REQUESTS:
        asked = session.asked(request.selection(session.selection))
        # A table that cannot be made of such rows says so.
        with contextlib.suppress(AnalysisError):
            session_table(request.name, asked)
    assert build_report(results, tmp_path / "page.html").size_bytes > 0

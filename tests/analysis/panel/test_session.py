import gc
import weakref
from collections.abc import Callable

import polars as pl
import pytest

from fleetrank.analysis.panel.observations import device_groups
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import session_table

LATENCIES = [1.0, 2.0, 3.0, 4.0, 5.0]
MakeSession = Callable[[], Session]


@pytest.fixture
def make_session(make_grid: Callable[..., pl.LazyFrame]) -> MakeSession:
    return lambda: Session(make_grid({"a": LATENCIES, "b": LATENCIES}), Selection())


def test_what_several_tables_share_is_made_once(make_session: MakeSession) -> None:
    made: list[Session] = []

    def count(session: Session) -> int:
        made.append(session)
        return len(made)

    session = make_session()
    assert session.panel is session.panel
    assert [session.once(count), session.once(count)] == [1, 1]
    assert make_session().once(count) == 2, "another session makes its own"


@pytest.mark.slow
def test_arrays_are_freed_with_the_session(make_session: MakeSession) -> None:
    session = make_session()
    arrays = [weakref.ref(session.panel.latency), weakref.ref(session.repeats.processes)]
    session.once(lambda one: one.panel)
    assert all(array() is not None for array in arrays)
    del session
    gc.collect()
    assert all(array() is None for array in arrays)


def test_another_request_reads_equal_rows_once_and_other_rows_again(
    make_session: MakeSession,
) -> None:
    session = make_session()
    cells = session.cells
    assert session.asked(session.selection) is session
    assert session.asked(Selection(source="a", settings=(("k", 2),))).cells is cells
    other = session.asked(Selection(model="m1"))
    assert session.asked(Selection(model="m1")) is other
    assert session_table("latency", other) is session_table("latency", other)
    assert other.cells is not cells
    assert other.cells.cells["model"].unique().to_list() == ["m1"]


def test_a_narrowed_session_has_only_the_kept_rows(make_session: MakeSession) -> None:
    session = make_session().narrowed(pl.col("device") == "a")
    assert session.cells.cells["device"].unique().to_list() == ["a"]
    assert session.selection == Selection()


def test_platforms_of_no_stated_runtime_are_a_group(make_grid: Callable[..., pl.LazyFrame]) -> None:
    is_b = pl.col("device") == "b"
    rows = make_grid({"a": LATENCIES, "b": LATENCIES}).with_columns(
        *(pl.when(~is_b).then(name).alias(name) for name in ("runtime", "precision"))
    )
    found = device_groups(Session(rows, Selection()))
    assert (found[0].runtime, found[0].precision) == (None, None)
    assert len(found) == 2

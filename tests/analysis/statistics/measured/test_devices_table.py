"""What stored attempts say of the devices of a lab."""

from collections.abc import Callable

import polars as pl
import pytest

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.measured.devices_table import devices_table, with_states
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table

WEEK_H = 7 * 24
MakeAttempts = Callable[..., pl.LazyFrame]


def table_of(frame: pl.LazyFrame) -> Table:
    return devices_table(Session(frame, Selection()))


@pytest.fixture
def devices(make_attempts: MakeAttempts) -> Table:
    """A phone that became 30 % slower in 20 weeks, a CPU with failures, and a published device."""
    rows = [
        {"device": "phone", "repeat": week, "started_utc": week * WEEK_H, "sweep_id": f"s{week:02}",
         "canary_ns_before": 3_000_000 + 45_000 * week}
        for week in range(20)
    ]  # fmt: skip
    lost = {"device": "cpu", "status": "failed", "error_kind": "device_lost"}
    rows += [lost | {"attempt": number} for number in range(2)]
    rows += [lost | {"error_kind": "crashed", "attempt": 2}, {"device": "cpu", "attempt": 3}]
    rows += [{"device": "published", "origin": "imported"}]
    return table_of(make_attempts(rows))


def test_a_row_has_the_newest_sweep_the_failures_by_kind_and_the_drift(devices: Table) -> None:
    cpu, phone = devices.frame.to_dicts()
    assert (cpu["device"], cpu["n_attempts"], cpu["n_failed"]) == ("cpu", 4, 3)
    assert cpu["failures"] == "2 device_lost, 1 crashed"
    assert (cpu["canary_ratio"], phone["failures"]) == (None, None)
    assert phone["last_sweep"] == "s19"
    # Of the newest twelve weeks: 8 to 19.
    assert phone["canary_first_ms"] == pytest.approx(3.36)
    assert phone["canary_last_ms"] == pytest.approx(3.855)
    assert phone["canary_ratio"] == pytest.approx(3.855 / 3.36)
    bars = phone["canary_weeks"]
    assert (len(bars), bars[0], bars[-1], list(bars) == sorted(bars)) == (12, "▁", "█", True)


def test_a_steady_canary_is_a_flat_line(make_attempts: MakeAttempts) -> None:
    rows = [
        {"repeat": week, "started_utc": week * WEEK_H, "canary_ns_after": 3_000_000 + week % 2}
        for week in range(4)
    ]
    assert table_of(make_attempts(rows)).frame["canary_weeks"].to_list() == ["▁▁▁▁"]


def test_a_registered_device_without_rows_and_a_device_without_a_file_are_listed(
    devices: Table,
) -> None:
    states = {
        "phone": {"state": "in use", "why": "sweep s", "canary_registered_ms": 3.0},
        "board": {"state": "registered"},
    }
    board, cpu, phone = with_states(devices, states).frame.to_dicts()
    assert (board["state"], board["n_attempts"], cpu["state"]) == ("registered", None, None)
    assert phone["canary_ratio"] == pytest.approx(3.855 / 3.0)
    empty = Table(title="Devices", frame=pl.DataFrame())
    assert with_states(empty, states).frame["device"].to_list() == ["board", "phone"]

from datetime import UTC, datetime, timedelta

import pytest

from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.sweep.sweep_status import read_status


def test_the_time_left_is_at_the_pace_of_the_current_run(tmp_path, new_row) -> None:
    now = datetime.now(UTC)
    store = ResultStore(tmp_path)
    record = {
        "state": "running",
        "run_started_utc": (now - timedelta(seconds=21)).isoformat(timespec="seconds"),
        "plan": {"n_cells": 1, "repeats": 6},
    }
    store.create_sweep(SweepRecord.model_validate({"sweep_id": "s-1"} | record))
    with store.open_journal("s-1") as journal:
        for repeat, ago_s in enumerate((90_000, 89_990, 20, 10)):
            stamp = (now - timedelta(seconds=ago_s)).isoformat()
            journal.append(new_row(sweep_id="s-1", repeat=repeat, started_utc=stamp))
        journal.flush()
    with store.lease("s-1"):
        status = read_status(store, "s-1")
    assert status.n_left == 2
    assert status.seconds_left == pytest.approx(20, abs=5)


def test_only_a_repeat_without_a_good_row_is_a_failure(tmp_path, new_row) -> None:
    store = ResultStore(tmp_path)
    store.create_sweep(
        SweepRecord.model_validate(
            {"sweep_id": "s-1"} | {"state": "finished", "plan": {"n_cells": 1, "repeats": 3}}
        )
    )
    bad = {"sweep_id": "s-1", "status": "failed", "error_kind": "crashed", "samples_ns": None}
    with store.open_journal("s-1") as journal:
        journal.append(new_row(**bad, repeat=0, error_message="first"))
        journal.append(new_row(**bad, repeat=0, attempt=1))
        journal.append(new_row(**bad, repeat=1, error_message="stays"))
        journal.append(new_row(sweep_id="s-1", repeat=0, attempt=2))
        journal.append(new_row(sweep_id="s-1", repeat=2))
    status = read_status(store, "s-1")
    assert (status.n_ok, status.n_failed, status.n_overcome) == (2, 1, 2)
    assert [failure["message"] for failure in status.failures] == ["stays"]

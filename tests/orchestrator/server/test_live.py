"""Progress read from a journal while another process appends to it."""

import json
from pathlib import Path

import pytest

from fleetrank.analysis.stored.sweep_record import IMPORTED, SweepRecord, SweepState
from fleetrank.foundation.wording import duration
from fleetrank.orchestrator.progress_events import DecisionsMade, OpenPair, SweepFinished, decided
from fleetrank.orchestrator.progress_file import ProgressFile
from fleetrank.orchestrator.store.journal import JournalTail, make_line
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.sweep.sweep_status import Live

SWEEP = "s-20260101T000000-aa"
PLAN = {"n_cells": 3, "repeats": 2, "cells_by_device": {"a": 2, "b": 1}}


def row(device: str, cell: str, repeat: int, **facts: object) -> dict[str, object]:
    return {
        "sweep_id": SWEEP, "cell_key": cell, "repeat": repeat, "attempt": 0, "schema_version": 1,
        "device": device, "model": "m", "platform_key": f"{device}/onnx", "status": "ok",
        "latency_p50_ns": 2e6, "flags": [], "started_utc": "2026-01-01T00:00:00+00:00",
        "finished_utc": "2026-01-01T00:00:01+00:00", **facts,
    }  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    store = ResultStore(tmp_path)
    record = {"state": "running", "started_utc": "2026-01-01T00:00:00+00:00", "plan": PLAN}
    store.create_sweep(SweepRecord.model_validate({"sweep_id": SWEEP} | record))
    return store


def test_a_line_is_read_once_and_half_a_line_waits(tmp_path: Path) -> None:
    path = tmp_path / f"{SWEEP}.jsonl"
    tail = JournalTail(path)
    assert list(tail.new_rows()) == []
    whole, half = (make_line(row("a", cell, 0)) for cell in "xy")
    path.write_bytes(whole + b"not a row\n[1]\n{}\n" + half[:40])
    assert [found["cell_key"] for found in tail.new_rows()] == ["x"]
    assert list(tail.new_rows()) == []
    with path.open("ab") as file:
        file.write(half[40:])
    assert [found["cell_key"] for found in tail.new_rows()] == ["y"]


def test_the_looks_of_a_sweep_until_decided_are_in_its_progress(store: ResultStore) -> None:
    look = DecisionsMade(
        contest="image on a/onnx",
        platform="a/onnx",
        question="order",
        margin=0.05,
        n=3,
        n_decided=2,
        answer="from fast to slow: x, y, z",
        open_pairs=(OpenPair(a="y", b="z", more_rounds=4, seconds=80.0),),
        n_repeats=2,
    )
    spec = {"name": "s", "models": ["m"], "until": "order"}
    store.update_record(SWEEP, {"spec": spec})
    write = ProgressFile(store.progress_path(SWEEP))
    for event in (look, SweepFinished(sweep_id=SWEEP, n_ok=9, n_failed=0, n_left=0, seconds=1.0,
                                      is_interrupted=False)):  # fmt: skip
        write(event)
    [found] = Live(store.root).progress()
    assert [decided(made) for made in found.decisions] == [look.text]
    assert look.text == (
        "2 of 3 decisions taken on a/onnx; from fast to slow: x, y, z; open: y against z (about 4 "
        "more rounds, 1 min 20 s); 2 more repeats now"
    )
    store.progress_path(SWEEP).write_text('{"devices": {}, "decisions": [{"n": 1}]}')
    assert Live(store.root).progress()[0].decisions == ()


def test_a_running_sweep_is_counted_per_device(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetrank.orchestrator.sweep.sweep_status._FRESH_S", -1.0)
    live = Live(store.root)
    with store.lease(SWEEP), store.open_journal(SWEEP) as journal:
        journal.append(row("a", "x", 0))
        [found] = live.progress()
        assert (found.state, found.n_ok, found.n_left) == ("running", 1, 5)
        failure = {"status": "failed", "error_kind": "crashed", "latency_p50_ns": None}
        journal.append(row("b", "z", 0, **failure, error_message="m", error_remedy="r"))
        [again] = live.progress()
    counts = [
        [one[name] for name in ("device", "n_repeats", "n_ok", "n_failed")] for one in again.devices
    ]
    assert counts == [["a", 4, 1, 0], ["b", 2, 0, 1]]
    assert [attempt["device"] for attempt in again.latest] == ["b", "a"]
    assert [attempt["latency_ms"] for attempt in again.latest] == [None, 2.0]
    assert again.failures[0]["error"] == "crashed"


def test_a_device_that_waits_says_why_and_for_how_long(store: ResultStore) -> None:
    now = {"a": {"running": None, "waits": "it is hot", "waited_s": 70.0}, "b": {"running": "m #1"}}
    store.progress_path(SWEEP).parent.mkdir(parents=True, exist_ok=True)
    store.progress_path(SWEEP).write_text(json.dumps({"devices": now}))
    with store.lease(SWEEP):
        [found] = Live(store.root).progress()
    a, b = found.devices
    assert (a["running"], b["running"], b["waits"]) == (None, "m #1", None)
    assert "it is hot" in str(a["waits"])
    assert duration(70.0) in str(a["waits"])


def test_a_sweep_whose_driver_died_is_counted_from_its_journal(store: ResultStore) -> None:
    with store.open_journal(SWEEP) as journal:
        journal.append(row("a", "x", 0))
    [status] = Live(store.root).progress()
    assert (status.state, status.n_ok, status.n_left) == ("stopped", 1, 5)


def test_a_finished_sweep_is_not_read_again(store: ResultStore) -> None:
    store.update_record(SWEEP, {"state": "finished", "n_ok": 5, "n_failed": 1, "n_left": 0})
    store.open_journal(SWEEP).path.parent.mkdir()
    store.open_journal(SWEEP).path.write_text("damaged")
    [found] = Live(store.root).progress()
    assert (found.n_ok, found.n_failed) == (5, 1)


def test_an_imported_sweep_is_marked_so(store: ResultStore) -> None:
    store.update_record(SWEEP, {"state": "finished", "origin": IMPORTED})
    [status] = Live(store.root).progress()
    assert status.state == IMPORTED


def test_a_damaged_record_hides_no_other(store: ResultStore) -> None:
    store.create_sweep(SweepRecord(sweep_id="t-20260102T000000-bb", state=SweepState.FINISHED))
    store.record_path("t-20260102T000000-bb").write_text("{half")
    with store.lease(SWEEP):
        found = Live(store.root).progress()
    assert [(one.sweep_id, one.state) for one in found] == [
        ("t-20260102T000000-bb", "unknown"), (SWEEP, "running"),
    ]  # fmt: skip


def test_no_result_is_no_sweep(tmp_path: Path) -> None:
    assert Live(tmp_path / "nowhere").progress() == []

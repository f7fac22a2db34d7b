"""What the spool keeps, whatever happens to the process or the disk."""

import os
import threading
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.contract.measurement import Failure, Measurement, WorkerFacts
from fleetrank.device_agents.hosts import spool as spool_module
from fleetrank.device_agents.hosts.spool import Spool
from fleetrank.foundation.vocabulary import ErrorKind, Flag, MemoryMetric, Origin, Status


def measurement(number: int, sweep: str = "s", **changes: object) -> Measurement:
    fields: dict[str, object] = {
        "task_id": f"{sweep}/c/{number}/0",
        "status": Status.OK,
        "origin": Origin.MEASURED,
        "samples_ns": (1, 2, 3),
    }
    return Measurement(**(fields | changes))


FULL = measurement(
    7,
    flags=(Flag.SPREAD,),
    memory_metric=MemoryMetric.SIMULATED,
    worker=WorkerFacts(settings=(("threads", 2), ("x", 0.5), ("on", True)), affinity=(0, 1)),
    failure=Failure(kind=ErrorKind.CRASHED, message="é\n", remedy="", is_transient=True),
    raw_log="line\nline",
)


def test_what_was_added_is_there_after_the_process_has_died(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.jsonl")
    spool.add(FULL)
    spool.add(measurement(1))
    # No close: a killed process closes nothing.
    found = Spool(tmp_path / "spool.jsonl").of_sweep("s")
    assert found == [FULL, measurement(1)]


def test_what_was_acknowledged_is_gone_and_an_empty_spool_takes_no_room(tmp_path: Path) -> None:
    path = tmp_path / "spool.jsonl"
    spool = Spool(path)
    for number in range(3):
        spool.add(measurement(number))
    spool.forget([measurement(0).task_id, measurement(2).task_id, "unknown"])
    assert spool.of_sweep("s") == [measurement(1)]
    spool.forget([measurement(1).task_id])
    assert (len(spool), path.stat().st_size) == (0, 0)
    spool.add(measurement(4))
    assert Spool(path).of_sweep("s") == [measurement(4)]


def test_sweeps_of_one_host_do_not_see_each_other(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.jsonl")
    spool.add(measurement(0, "s-1"))
    spool.add(measurement(0, "s-10"))
    assert [found.task_id for found in spool.of_sweep("s-1")] == ["s-1/c/0/0"]


@given(st.data())
def test_a_line_cut_off_or_damaged_costs_itself_alone(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("spool") / "spool.jsonl"
    spool = Spool(path)
    for number in range(3):
        spool.add(measurement(number))
    content = path.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    again = Spool(path)
    # The last newline alone may be missing.
    assert len(again) in {whole, whole + 1}
    again.add(measurement(9))
    assert measurement(9) in Spool(path).of_sweep("s")


def test_a_sync_lets_measurements_in_and_whoever_asks_meanwhile_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path / "spool.jsonl")
    spool.add(measurement(0))
    begun, go_on, synced = threading.Event(), threading.Event(), []

    def slow(descriptor: int) -> None:
        begun.set()
        go_on.wait(10.0)
        synced.append(len(spool))

    monkeypatch.setattr(spool_module.os, "fsync", slow)
    threads = [threading.Thread(target=spool.sync) for _ in range(2)]
    threads[0].start()
    assert begun.wait(10.0)
    spool.add(measurement(1))
    threads[1].start()
    threads[1].join(0.1)
    assert threads[1].is_alive()
    go_on.set()
    for thread in threads:
        thread.join(10.0)
    assert synced == [2, 2], "what came during the first sync has one of its own"


def test_a_full_disk_loses_nothing_that_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path / "spool.jsonl")

    def no_space(descriptor: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spool_module.os, "write", no_space)
    spool.add(measurement(0))
    monkeypatch.undo()
    assert spool.of_sweep("s") == [measurement(0)]


def test_half_a_line_on_a_full_disk_does_not_spoil_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spool.jsonl"
    spool = Spool(path)
    write = os.write
    spool.add(measurement(0))

    def half_then_full(descriptor: int, data: memoryview) -> int:
        if len(data) < len(orjson.dumps(measurement(1))):
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:100])

    monkeypatch.setattr(spool_module.os, "write", half_then_full)
    spool.add(measurement(1))
    monkeypatch.undo()
    spool.add(measurement(2))
    assert Spool(path).of_sweep("s") == [measurement(0), measurement(2)]


def test_a_spool_that_is_never_empty_does_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "_REWRITE_BYTES", 20_000)
    path = tmp_path / "spool.jsonl"
    spool = Spool(path)
    for number in range(200):
        spool.add(measurement(number))
        if number:
            spool.forget([measurement(number - 1).task_id])
    assert path.stat().st_size < 25_000
    assert measurement(199) in Spool(path).of_sweep("s")


def test_others_may_not_read_what_a_user_has_measured(tmp_path: Path) -> None:
    path = tmp_path / "own" / "spool.jsonl"
    Spool(path)
    assert (path.stat().st_mode & 0o077, path.parent.stat().st_mode & 0o077) == (0, 0)
    assert os.access(path, os.W_OK)


def test_the_oldest_measurements_make_room_where_room_is_short(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.jsonl", most=2)
    for number in range(3):
        spool.add(measurement(number))
    assert len(spool) == 2
    assert measurement(0).task_id not in spool


def test_without_orjson_the_same_is_written_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Spool(tmp_path / "spool.jsonl").add(measurement(0))
    monkeypatch.setattr(spool_module, "orjson", None)
    spool = Spool(tmp_path / "spool.jsonl")
    spool.add(measurement(1))
    monkeypatch.undo()
    found = Spool(tmp_path / "spool.jsonl")
    assert [*found.of_sweep("s")] == [measurement(0), measurement(1)]

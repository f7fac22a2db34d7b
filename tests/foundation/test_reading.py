"""Reading never holds up a measurement, pauses for it, and is noticed by it; within one process."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import wait_until

from fleetrank.foundation import lease
from fleetrank.foundation.lease import Use, give_up_at_once, host_lease, is_host_measured
from fleetrank.foundation.reading_beside import (
    ReadingWatch,
    pause_between_steps,
    reading_beside_measurements,
    time_had_s,
)

_LIMIT_S = 20.0


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


class Reader:
    """Reads in another thread, one step for each `go`."""

    def __init__(self) -> None:
        self.go, self.n_steps = threading.Semaphore(0), 0
        self.said: list[str] = []
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        wait_until(is_announced, "the announcement")

    def _read(self) -> None:
        with reading_beside_measurements(say=self.said.append):
            while self.go.acquire(timeout=_LIMIT_S) and self.n_steps < 2:
                pause_between_steps()
                self.n_steps += 1


def is_announced() -> bool:
    return ReadingWatch().has_seen()


@pytest.fixture
def reader() -> Iterator[Reader]:
    one = Reader()
    yield one
    for _ in range(3):
        one.go.release()
    one.thread.join(_LIMIT_S)


def test_no_measurement_waits_for_reading(reader: Reader) -> None:
    with host_lease("sweep s-1", give_up=give_up_at_once) as is_held:
        assert is_held
        assert is_announced()
    assert reader.thread.is_alive()


@pytest.mark.slow
def test_reading_pauses_between_two_steps_and_is_not_announced_meanwhile(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_NOTICE_S", 0.0)
    with host_lease("sweep s-1"):
        reader.go.release()
        wait_until(lambda: not is_announced(), "the pause")
        wait_until(lambda: reader.said, "the notice")
        assert reader.n_steps == 0
    wait_until(lambda: reader.n_steps == 1, "the step after the pause")
    assert is_announced()
    (said,) = reader.said
    assert said.startswith("waiting for sweep s-1 (process ")
    assert said.endswith(", at most 5 s")


@pytest.mark.slow
def test_reading_goes_on_at_its_limit_and_says_what_the_rows_get() -> None:
    said: list[str] = []
    with host_lease("sweep s-1"), reading_beside_measurements(limit_s=0.1, say=said.append):
        pause_between_steps()
        assert is_announced()
    (text,) = said
    assert "sweep s-1" in text
    assert "flag beside_reading" in text


def test_reading_does_not_wait_for_work_that_takes_no_times() -> None:
    """Such as exports, of this workspace or of another."""
    said: list[str] = []
    with host_lease("the export of models", use=Use.WORK):
        assert not is_host_measured()
        with reading_beside_measurements(say=said.append):
            pause_between_steps()
    with host_lease("sweep s-1"):
        assert is_host_measured()
    assert said == []


def test_a_measurement_notices_reading_that_came_and_went() -> None:
    with host_lease("sweep s-1"):
        watch = ReadingWatch()
        assert not watch.has_seen()
        with reading_beside_measurements(limit_s=0.0):
            pass
        assert watch.has_seen()
        assert not is_announced()


def test_without_a_place_for_the_lease_reading_starts(own_folder: Path) -> None:
    (own_folder / "fleetrank").mkdir(mode=0o777)
    (own_folder / "fleetrank").chmod(0o777)
    with reading_beside_measurements():
        pause_between_steps()


def test_a_limit_counts_the_time_with_a_core() -> None:
    assert time_had_s(30.0, 60.0) == 30.0
    assert time_had_s(30.0, 4.0) == 8.0
    assert time_had_s(300.0, 0.1) == 30.0

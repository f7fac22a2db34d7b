"""What the parent of a worker knows itself, it does not take from the reply."""

from dataclasses import replace

import pytest

from fleetrank.device_agents.confinement import seccomp, walls
from fleetrank.device_agents.contract.measurement import (
    Measurement,
    WorkerFacts,
    with_possible_times,
)
from fleetrank.device_agents.contract.task import Execution, MeasureTask
from fleetrank.device_agents.linux.worker_client import measure_in_worker, read_measurement
from fleetrank.foundation.codec import to_json
from fleetrank.foundation.supervised_child import ChildEnd, End
from fleetrank.foundation.vocabulary import ErrorKind, Mode, Origin, Runtime, Status
from tests.device_agents.conftest import plain_task

STARTED = "2026-01-01T00:00:00+00:00"
FORGED = Measurement(
    task_id="t",
    status=Status.OK,
    origin=Origin.IMPORTED,
    samples_ns=(5,),
    worker=WorkerFacts(confinement="landlock99+audit"),
    started_utc="no time",
)


def read(text: str, *, is_trusted: bool = True, mode: Mode = Mode.EAGER) -> Measurement:
    end = ChildEnd(end=End.ITSELF, exit_code=0, stdout=text, stderr="", timeout_s=10.0)
    return read_measurement(_task(is_trusted=is_trusted, mode=mode), end, STARTED, None)


def _task(*, is_trusted: bool = True, mode: Mode = Mode.EAGER) -> MeasureTask:
    return plain_task(
        execution=Execution(runtime=Runtime.TORCH, backend="cpu", mode=mode), is_trusted=is_trusted
    )


def test_origin_and_times_are_those_of_the_parent() -> None:
    found = read(to_json(FORGED))
    assert (found.status, found.origin) == (Status.OK, Origin.MEASURED)
    assert found.started_utc == STARTED
    assert found.finished_utc is not None
    assert found.finished_utc > STARTED


@pytest.mark.parametrize(
    ("stated", "end"), [("2025-12-30T00", "01-01T00:00:03"), ("2026-01-09T00", "01-01T00:00:03"),
                        ("2026-01-01T00:00:01", "01-01T00:00:01")],
)  # fmt: skip
def test_a_clock_that_was_set_does_not_end_a_measurement_before_its_start(stated, end) -> None:
    found = replace(FORGED, started_utc=STARTED, finished_utc=f"{stated}+00:00")
    assert with_possible_times(found, took_s=3.0).finished_utc == f"2026-{end}+00:00"


@pytest.mark.parametrize(
    ("is_trusted", "mode", "names"),
    [
        (True, Mode.EAGER, None),
        (False, Mode.EAGER, "landlock7+seccomp+audit"),
        (False, Mode.COMPILE, "landlock7+seccomp"),
    ],
)
def test_the_parent_says_what_confined_its_worker(
    is_trusted: bool, mode: Mode, names: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walls, "abi", lambda: 7)
    monkeypatch.setattr(seccomp, "is_available", lambda: True)
    found = read(to_json(FORGED), is_trusted=is_trusted, mode=mode)
    assert found.worker.confinement == names


def test_an_impossible_value_is_bad_output() -> None:
    found = read(to_json(FORGED).replace("[5]", "[-5]"))
    assert (found.status, found.failure.kind) == (Status.FAILED, ErrorKind.BAD_OUTPUT)
    assert "samples_ns is -5" in found.failure.message


def test_a_stop_before_the_start_starts_no_worker() -> None:
    found = measure_in_worker(_task(), lambda: True, command=("/nowhere/python",))
    assert found.failure.kind is ErrorKind.INTERRUPTED
    assert found.failure.is_transient

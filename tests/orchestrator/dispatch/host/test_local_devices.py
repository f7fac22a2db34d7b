"""A device that needs quiet waits for whoever else computes on its host."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_onnx import save_tiny_onnx

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import BlockPolicy, Execution, MeasurePolicy, MeasureTask
from fleetrank.device_agents.registry import create_agent
from fleetrank.device_agents.simulated.agent import SimulatedAgent
from fleetrank.foundation.reading import reading_beside_measurements
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import ErrorKind, Flag, Runtime, Status
from fleetrank.orchestrator.dispatch.host.local_devices import LocalDevices
from fleetrank.orchestrator.identity.cells import DeviceSpec, HostShare

_LIMIT_S = 60.0
QUIET = DeviceSpec(name="d", kind="simulated", share=HostShare.ALONE)
HOLD = """
from fleetrank.foundation.lease import host_lease
with host_lease("another sweep"):
    print("held", flush=True)
    input()
"""
TASK = MeasureTask(
    task_id="s-1/c/0/0",
    artifact_path="/nowhere.onnx",
    artifact_sha256="0",
    execution=Execution(runtime=Runtime.ONNX, backend="cpu"),
    timeout_s=0.5,
    macs_and_parameters=(1_000_000, 1_000),
)


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """Another process of this host that has its lease until it reads a line."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def _until(is_so: Callable[[], bool]) -> None:
    """Asks again and again: on a busy machine a thread may begin late."""
    deadline_s = time.monotonic() + _LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def _measure(bench: LocalDevices, answers: list[Measurement]) -> threading.Thread:
    thread = threading.Thread(target=lambda: answers.append(bench.measure(QUIET, TASK)))
    thread.start()
    return thread


def test_it_measures_when_the_other_has_finished_and_the_wait_does_not_count(other) -> None:
    bench, answers = LocalDevices(), []
    thread = _measure(bench, answers)
    thread.join(1.0)
    assert thread.is_alive(), "longer than its time limit, and still waiting"
    assert not bench.overdue(0.0)
    other.communicate("go\n")
    thread.join(_LIMIT_S)
    assert [answer.status for answer in answers] == [Status.OK]


def test_a_wait_that_is_interrupted_is_an_interrupted_attempt(other) -> None:
    bench, answers = LocalDevices(), []
    thread = _measure(bench, answers)
    _until(lambda: bench.interrupt() or not thread.is_alive())
    assert [answer.failure and answer.failure.kind for answer in answers] == [ErrorKind.INTERRUPTED]


def test_the_first_request_to_stop_ends_a_wait_for_the_host(other) -> None:
    bench, answers = LocalDevices(), []
    thread = _measure(bench, answers)
    _until(lambda: bench.finish_rounds() or not thread.is_alive())
    assert [answer.failure and answer.failure.kind for answer in answers] == [ErrorKind.INTERRUPTED]


def test_a_long_wait_for_another_sweep_names_it(other) -> None:
    bench, answers = LocalDevices(), []
    thread = _measure(bench, answers)
    thread.join(_LIMIT_S)
    (answer,) = answers
    assert answer.failure is not None
    assert answer.failure.kind is ErrorKind.UNFIT_CONDITIONS
    assert answer.failure.wait is not None
    assert "used by another sweep" in answer.failure.message
    assert answer.waited_s is not None
    assert answer.waited_s > 1.0
    other.communicate("go\n")
    assert bench.measure(QUIET, TASK).status is Status.OK


def test_the_wait_for_a_device_is_stored(other) -> None:
    bench, answers = LocalDevices(), []
    thread = _measure(bench, answers)
    thread.join(0.5)
    other.communicate("go\n")
    thread.join(_LIMIT_S)
    assert answers[0].waited_s is not None
    assert 0.4 < answers[0].waited_s < _LIMIT_S
    free = DeviceSpec(name="free", kind="simulated")
    assert (bench.measure(free, TASK).waited_s or 0.0) < answers[0].waited_s


def test_a_row_measured_beside_reading_says_so() -> None:
    bench, own = LocalDevices(), DeviceSpec(name="own", kind="simulated")
    with reading_beside_measurements(limit_s=0.0):
        assert Flag.BESIDE_READING in bench.measure(QUIET, TASK).flags
        assert Flag.BESIDE_READING not in bench.measure(own, TASK).flags
    assert Flag.BESIDE_READING not in bench.measure(QUIET, TASK).flags


def test_a_device_with_a_processor_of_its_own_does_not_wait(other) -> None:
    bench = LocalDevices()
    assert bench.measure(DeviceSpec(name="d", kind="simulated"), TASK).status is Status.OK


def test_one_device_measures_for_one_sweep_at_a_time_and_the_other_waits_its_turn() -> None:
    slow = DeviceSpec(name="d", kind="simulated", options=(("duration_s", 0.4),))
    bench, answers = LocalDevices(), []
    tasks = [replace(TASK, task_id=f"s-{number}/c/0/0", timeout_s=60.0) for number in (1, 2)]
    threads = [
        threading.Thread(target=lambda t=t: answers.append(bench.measure(slow, t))) for t in tasks
    ]
    started_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_LIMIT_S)
    assert time.perf_counter() - started_s >= 0.8
    assert [answer.status for answer in answers] == [Status.OK, Status.OK]


def test_a_task_whose_agent_does_not_come_back_in_time_is_overdue() -> None:
    slow = DeviceSpec(name="d", kind="simulated", options=(("duration_s", 30.0),))
    bench = LocalDevices()
    task = replace(TASK, timeout_s=0.05)
    thread = threading.Thread(target=bench.measure, args=(slow, task))
    thread.start()
    _until(lambda: bench.overdue(0.1) == [task.task_id])
    assert bench.overdue(60.0) == []
    bench.interrupt("another sweep")
    thread.join(0.2)
    assert thread.is_alive()
    bench.interrupt("s-1")
    thread.join(_LIMIT_S)
    assert not thread.is_alive()


def test_all_devices_are_asked_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = tuple(DeviceSpec(name=name, kind="simulated") for name in "abc")
    bench = LocalDevices()
    together = threading.Barrier(len(specs), timeout=10)
    probe = SimulatedAgent.probe

    def wait_for_the_others(agent: SimulatedAgent) -> DeviceFacts:
        together.wait()
        return probe(agent)

    monkeypatch.setattr(SimulatedAgent, "probe", wait_for_the_others)
    assert set(bench.facts(specs)) == {"a", "b", "c"}


def test_the_time_limit_of_a_phone_has_no_wait_in_it() -> None:
    patient = {"serial": "S", "max_wait_s": 900.0, "settle_s": 20.0, "boot_limit_s": 100.0}
    agent, other = create_agent("android", patient), create_agent("android", {"serial": "S"})
    assert agent.longest_s(TASK) == other.longest_s(TASK) > TASK.timeout_s
    assert create_agent("cpu", {}).longest_s(TASK) == TASK.timeout_s


@pytest.mark.slow
def test_a_round_that_shall_finish_is_stored_with_the_blocks_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    file = save_tiny_onnx(tmp_path / "tiny.onnx")
    members = ("s-1/c/0/0", "s-1/d/0/0")
    tasks = [
        replace(
            TASK,
            task_id=task_id,
            members=members,
            artifact_path=str(file),
            artifact_sha256=file_sha256(file),
            is_trusted=True,
            timeout_s=60.0,
            policy=MeasurePolicy(max_time_s=60.0, half_width=1e-9, min_warmup_s=0.0),
            blocks=BlockPolicy(block_s=0.01, min_blocks=10_000, max_blocks=10_000),
        )
        for task_id in members
    ]
    bench, answers = LocalDevices(), []
    device = DeviceSpec(name="d", kind="cpu", share=HostShare.ALONE)
    threads = [
        threading.Thread(target=lambda t=t: answers.append(bench.measure(device, t))) for t in tasks
    ]
    for thread in threads:
        thread.start()
    _until(lambda: bench.finish_rounds("s-1") or not any(one.is_alive() for one in threads))
    assert [(one.status, one.stop_reason) for one in answers] == [(Status.OK, "stopped")] * 2
    assert len({len(one.blocks) for one in answers}) == 1

"""Processes of a set load in turn and run at the same time; one that fails ends the set alone."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from daily import daily

from fleetrank.device_agents.contract.measurement import Conditions, Measurement
from fleetrank.device_agents.contract.task import (
    Execution,
    MeasurePolicy,
    MeasureTask,
    ReplicaPolicy,
)
from fleetrank.device_agents.cpu import CpuAgent
from fleetrank.device_agents.linux import replica_client
from fleetrank.device_agents.linux.energy import CounterSource
from fleetrank.device_agents.linux.replica_client import (
    core_use,
    measure_in_workers,
    own_flags,
    why_not_replicated,
)
from fleetrank.foundation.codec import from_json, to_json
from fleetrank.foundation.core_use import CoreUse
from fleetrank.foundation.vocabulary import EnergyMethod, ErrorKind, Flag, Runtime, Status
from fleetrank.foundation.workload import Workload
from tests.device_agents.conftest import BACKENDS, make_task

RUN_S = 0.2
KILLED = "os.kill(os.getpid(), 9)"
USABLE = sorted(os.sched_getaffinity(0))


def policy_of(count: int, **changes: object) -> ReplicaPolicy:
    return ReplicaPolicy(**{"count": count, "run_s": RUN_S, **changes})  # type: ignore[arg-type]


def set_task(path: Path, replicas: ReplicaPolicy, **changes: object) -> MeasureTask:
    task = make_task(path, Runtime.ONNX, is_trusted=True, **changes)
    return replace(task, execution=replace(task.execution, replicas=replicas))


@pytest.mark.slow
def test_each_process_has_its_cores_and_none_starts_before_all_are_warm(
    onnx_file: Path, tmp_path: Path
) -> None:
    cpus = ((USABLE[0],), (USABLE[-1],))
    execution = Execution(runtime=Runtime.ONNX, backend="cpu", affinity=cpus[0])
    task = set_task(onnx_file, policy_of(2, cpus=cpus), execution=execution)
    seen = measure_in_workers(task, command=waiting_worker(tmp_path))
    assert tuple(run.cpus for run in seen.replicas.runs) == cpus
    if len(USABLE) > 1:
        assert seen.replicas.core_use in (CoreUse.OWN, CoreUse.SIBLINGS)
    assert seen.status is Status.OK, seen.failure
    runs = seen.replicas.runs
    assert [run.replica for run in runs] == [1, 2]
    starts = [run.start_ns for run in runs]
    warm_ns = [int(file.read_text()) for file in tmp_path.glob("warm-*")]
    assert len(warm_ns) == 2
    assert max(warm_ns) <= min(starts)  # type: ignore[type-var]
    for run in runs:
        assert run.end_ns - run.start_ns >= RUN_S * 1e9  # type: ignore[operator]
        assert sum(run.samples_ns) <= run.end_ns - run.start_ns  # type: ignore[operator]
        assert run.run_peak_memory_bytes is not None
    assert seen.samples_ns == ()
    assert seen.energy is None
    assert from_json(Measurement, to_json(seen)) == seen


def waiting_worker(folder: Path) -> tuple[str, ...]:
    """A worker that notes when it begins to wait for the others."""
    return patched(f"""
    import time
    with open(f"{folder}/warm-{{os.getpid()}}", "w") as file:
        file.write(str(time.monotonic_ns()))
    return wait(self, report)
""")


def patched(body: str) -> tuple[str, ...]:
    """The worker, whose wait for its turn is this function of `self`, `report` and `wait`."""
    script = f"""
import os, sys
from fleetrank.device_agents.worker import __main__
from fleetrank.device_agents.worker import watch as turns
wait = turns.Turns.wait
def changed(self, report):
{body}
turns.Turns.wait = changed
sys.exit(__main__.main())
"""
    return (sys.executable, "-P", "-c", script)


def first_of(folder: Path, then: str) -> tuple[str, ...]:
    """A worker of which the first one that waits does something else after the start."""
    return patched(f"""
    turn = wait(self, report)
    try:
        os.close(os.open("{folder}/victim", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return turn
    {then}
""")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("then", "timeout_s", "kind"),
    daily(
        [
            (KILLED, 60.0, ErrorKind.CRASHED),
            ("__import__('time').sleep(600)", 6.0, ErrorKind.TIMED_OUT),
            ("raise MemoryError", 60.0, ErrorKind.OUT_OF_MEMORY),
        ],
        KILLED,
    ),
)
def test_one_that_fails_ends_the_set_and_the_others_are_kept(
    onnx_file: Path, tmp_path: Path, then: str, timeout_s: float, kind: ErrorKind
) -> None:
    task = set_task(onnx_file, policy_of(2), timeout_s=timeout_s)
    seen = measure_in_workers(task, command=first_of(tmp_path, then))
    assert seen.status is Status.FAILED
    assert seen.failure.kind is kind
    assert "of 2:" in seen.failure.message
    failed = [run for run in seen.replicas.runs if run.error_kind is not None]
    assert [run.error_kind for run in failed] == [kind]
    assert failed[0].start_ns is None
    kept = [run for run in seen.replicas.runs if run.error_kind is None]
    assert len(kept) == 1
    assert all(run.samples_ns for run in kept)


@pytest.mark.slow
def test_a_file_that_cannot_be_loaded_is_loaded_once(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    seen = measure_in_workers(set_task(broken, policy_of(3)))
    assert seen.failure.kind is ErrorKind.BAD_ARTIFACT
    assert [run.replica for run in seen.replicas.runs] == [1]


@pytest.mark.slow
def test_copies_without_room_are_refused_after_the_first(
    onnx_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_client, "anonymous_bytes", lambda _pid: 2**40)
    seen = CpuAgent({}).measure(set_task(onnx_file, policy_of(2)))
    assert seen.failure.kind is ErrorKind.OUT_OF_MEMORY
    assert not seen.failure.is_transient
    assert "processes at most" in seen.failure.remedy
    assert seen.replicas.runs == ()


def test_energy_is_that_of_the_looks_inside_the_common_run(monkeypatch) -> None:
    clock = SimpleNamespace(now_ns=0)
    monkeypatch.setattr(
        replica_client, "time", SimpleNamespace(perf_counter_ns=lambda: clock.now_ns)
    )
    meter = replica_client._Meter(
        CounterSource(EnergyMethod.RAPL_COUNTER, lambda: 2.0 * clock.now_ns / 1e6), run_s=3.0
    )
    meter.begin()
    for look in range(1, 80):
        clock.now_ns = look * 50_000_000
        meter.look()
    energy = meter.energy()
    assert energy.mj / energy.window_ns * 1e6 == pytest.approx(2.0)
    assert 2.5e9 < energy.window_ns <= 3.0e9


@pytest.mark.slow
def test_a_stop_ends_a_set(onnx_file: Path) -> None:
    silent = (sys.executable, "-c", "import time; time.sleep(60)")
    task = set_task(onnx_file, policy_of(2), timeout_s=3.0)
    seen = measure_in_workers(task, stop_requested=lambda: True, command=silent)
    assert seen.failure.kind is ErrorKind.INTERRUPTED


def test_no_process_of_a_set_counts_the_energy_of_the_device(onnx_file: Path) -> None:
    task = set_task(onnx_file, policy_of(2), policy=MeasurePolicy(energy_s=5.0))
    assert [one.policy.energy_s for one in replica_client._tasks(task, policy_of(2))] == [0.0] * 2


@pytest.mark.parametrize(
    ("cpus", "use"),
    [
        (None, CoreUse.FREE),
        (((0,), (1,)), CoreUse.OWN),
        (((0, 1), (2, 3)), CoreUse.OWN),
        (((0,), (4,)), CoreUse.SIBLINGS),
        (((0, 4), (1, 5)), CoreUse.OWN),
        (((0, 1), (1, 2)), CoreUse.SHARED),
        (((0, 1, 2), (0, 1, 2)), CoreUse.SHARED),
    ],
)
def test_core_use(cpus: tuple[tuple[int, ...], ...] | None, use: CoreUse) -> None:
    siblings = {cpu: (cpu % 4, cpu % 4 + 4) for cpu in range(8)}
    assert core_use(cpus, siblings) is use
    assert core_use(((0,), (1,)), {}) is CoreUse.OWN, "a system that reports no siblings"


def test_load_of_the_set_itself_raises_no_flag() -> None:
    idle, loaded = Conditions(busy_share=0.01, other_processes=0), Conditions(busy_share=0.9)
    seen = Measurement(
        task_id="t",
        status=Status.OK,
        origin="measured",  # type: ignore[arg-type]
        flags=(Flag.DRIFT, Flag.BUSY_HOST, Flag.SHARED_DEVICE),
        conditions_before=idle,
        conditions_after=replace(loaded, other_processes=3),
    )
    assert own_flags(seen, 3) == (Flag.DRIFT,)
    assert own_flags(seen, 2) == (Flag.DRIFT, Flag.SHARED_DEVICE)
    busy = replace(seen, conditions_before=replace(idle, busy_share=0.5))
    assert own_flags(busy, 3) == (Flag.DRIFT, Flag.BUSY_HOST)
    stolen = replace(seen, conditions_after=replace(loaded, steal_share=0.2))
    assert own_flags(stolen, 3) == (Flag.DRIFT, Flag.BUSY_HOST)


def test_sequences_are_refused_with_their_parts() -> None:
    execution = Execution(runtime=Runtime.ONNX, backend=BACKENDS[Runtime.ONNX])
    assert why_not_replicated(execution) is None
    loop = replace(execution, workload=Workload.parse("generate@8+4"))
    assert "decode" in (why_not_replicated(loop) or "")

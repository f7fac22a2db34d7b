"""Repeats on a virtual phone: tasks to give, and what a good and a failed one look like."""

import time
from collections.abc import Callable
from dataclasses import replace

from adb_bench import AdbBench
from phone_agent import TINY_TFLITE, leftovers

from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.android.execution.program_files import file_sha256
from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.contract.task import CanaryTask, Execution, MeasurePolicy, MeasureTask
from fleetrank.device_agents.host.patience import measure_when_fit
from fleetrank.foundation.vocabulary import Origin, Runtime, Status

NewAgent = Callable[..., AndroidAgent]
"""Makes the agent of a phone; keyword arguments are further options."""
QUICK = MeasurePolicy(min_warmup_runs=2, min_warmup_s=0.0, min_runs=8, max_time_s=0.1)
ENDLESS = replace(QUICK, min_runs=10**7, max_time_s=600.0)
PID = "data/local/tmp/fleetrank/run/0/pid"


def make_task(**changes: object) -> MeasureTask:
    sha256 = file_sha256(TINY_TFLITE)
    task = MeasureTask(
        task_id="sweep/cell/0/0",
        artifact_path=str(TINY_TFLITE),
        artifact_sha256=sha256,
        execution=Execution(runtime=Runtime.TFLITE, backend="xnnpack", affinity=(4, 5)),
        policy=QUICK,
        timeout_s=30.0,
    )
    return replace(task, **changes)


def make_canary(reference_ns: int, **changes: bool) -> CanaryTask:
    canary = CanaryTask(
        artifact_path=str(TINY_TFLITE),
        artifact_sha256=file_sha256(TINY_TFLITE),
        affinity=None,
        reference_ns=reference_ns,
        spread=None,
        runs_before=False,
        runs_after=False,
    )
    return replace(canary, **changes)


def failure_of(seen: Measurement) -> Failure:
    """The failure, complete."""
    assert seen.status is Status.FAILED
    assert seen.failure is not None
    assert seen.failure.message
    assert seen.failure.remedy
    assert seen.origin is Origin.VIRTUAL
    return seen.failure


def assert_good(seen: Measurement, bench: AdbBench) -> None:
    """A row to count, and nothing left on the phone."""
    assert seen.status is Status.OK, seen.failure
    assert seen.summary is not None
    assert seen.origin is Origin.VIRTUAL
    assert leftovers(bench.farmed.folder) == []


def wait_until_it_runs(bench: AdbBench) -> None:
    end_s = time.monotonic() + 20
    while not (bench.farmed.folder / PID).exists():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def measure_patiently(agent: AndroidAgent, task: MeasureTask) -> Measurement:
    """As the scheduler does: after a cut adb needs a moment to see the phone again."""
    return measure_when_fit(agent, task, print)

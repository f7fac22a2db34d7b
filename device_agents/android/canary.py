"""The canary: a small model run as any other, to see whether the phone is still itself."""

from statistics import median

from device_agents.android.program import Program
from device_agents.android.runners.runner import ToolReading
from device_agents.android.validity import Canary
from device_agents.errors import BadOutputError
from device_agents.types import CanaryTask, Execution, MeasurePolicy, MeasureTask
from device_agents.vocabulary import Runtime

CANARY_POLICY = MeasurePolicy(
    min_warmup_runs=5, min_warmup_s=0.2, max_warmup_s=1.0, min_runs=20, max_time_s=1.0
)
"""A second: enough for a median within some per cent, which is all a ratio of 10 % asks for."""
CANARY_TIMEOUT_S = 60.0
_BACKENDS = {Runtime.TFLITE: "xnnpack", Runtime.ONNX: "cpu"}


def canary_task(canary: CanaryTask) -> MeasureTask:
    """The canary as a task of its own, one thread wide."""
    return MeasureTask(
        task_id="canary",
        artifact_path=canary.artifact_path,
        artifact_sha256=canary.artifact_sha256,
        execution=Execution(
            runtime=canary.runtime,
            backend=_BACKENDS[canary.runtime],
            affinity=canary.affinity,
        ),
        is_trusted=True,
        policy=CANARY_POLICY,
        timeout_s=CANARY_TIMEOUT_S,
    )


def run_canary(program: Program, canary: CanaryTask) -> Canary:
    """Runs the canary and compares it with its registration; raises as any other run."""
    task = canary_task(canary)
    latency_ns = latency_of(program.read(task, program.run(task)))
    return Canary(
        latency_ns=latency_ns,
        ratio=latency_ns / canary.reference_ns,
        repeatability=canary.repeatability,
    )


def latency_of(reading: ToolReading) -> int:
    """The latency of one process: the median of its samples, or the tool's own summary.

    Raises:
        BadOutputError: the output holds none.
    """
    if reading.samples_ns:
        return round(median(reading.samples_ns))
    summary = reading.summary
    latency_ns = summary.latency_ns if summary is not None else None
    if latency_ns is None:
        raise BadOutputError("the program printed no latency", "look at its output")
    return latency_ns

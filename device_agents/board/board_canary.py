"""The canary of a board: a small model of known latency, before and after some repeats."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from statistics import median

from fleetrank.device_agents.contract.measurement import Conditions, Measurement
from fleetrank.device_agents.contract.task import (
    CanaryTask,
    Execution,
    MeasurePolicy,
    MeasureTask,
    deviates,
)
from fleetrank.device_agents.errors import NotFitError, UnfitConditionsError
from fleetrank.foundation.vocabulary import Runtime

CANARY_LIMIT_S = 120.0
_POLICY = MeasurePolicy(max_time_s=5.0, energy_s=0.0)


def canary_task(path: str, sha256: str, affinity: tuple[int, ...] | None) -> MeasureTask:
    """One run of the canary; its id is new each time, because an old result says nothing of now."""
    return MeasureTask(
        task_id=f"canary/{datetime.now(UTC).isoformat()}",
        artifact_path=path,
        artifact_sha256=sha256,
        execution=Execution(runtime=Runtime.TFLITE, backend="xnnpack", affinity=affinity),
        is_trusted=True,
        policy=_POLICY,
        timeout_s=CANARY_LIMIT_S,
    )


def canary_ns(
    canary: CanaryTask, measure: Callable[[MeasureTask], Measurement], tolerance: float
) -> int:
    """Measures the canary; returns its latency.

    Raises:
        NotFitError: it deviates more, slower or faster, than the board's noise explains.
        UnfitConditionsError: it could not be measured.
    """
    task = canary_task(canary.artifact_path, canary.artifact_sha256, canary.affinity)
    seen = measure(task)
    if seen.failure is not None:
        raise UnfitConditionsError(
            f"the canary model could not be measured: {seen.failure.message}", seen.failure.remedy
        )
    found = round(median(seen.samples_ns))
    ratio = found / canary.reference_ns
    if deviates(ratio, canary.spread, tolerance):
        raise NotFitError(
            f"the canary model took {ratio:.2f} times its registered latency",
            "let the board cool down and end its other programs; if its settings were changed, "
            "register it again",
        )
    return found


def with_canary(
    measurement: Measurement, before_ns: int | None, after_ns: int | None
) -> Measurement:
    """The measurement with the latencies of the canary; `None` if it did not run."""
    return replace(
        measurement,
        conditions_before=_with(measurement.conditions_before, before_ns),
        conditions_after=_with(measurement.conditions_after, after_ns),
    )


def _with(found: Conditions | None, latency_ns: int | None) -> Conditions | None:
    return None if found is None else replace(found, canary_ns=latency_ns)

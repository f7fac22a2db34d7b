"""The canary of a device: a small model of known latency, before and after some repeats."""

from collections.abc import Callable
from dataclasses import replace

from fleetrank.device_agents.contract.measurement import Conditions, Measurement
from fleetrank.device_agents.contract.task import (
    CanaryTask,
    MeasurePolicy,
    MeasureTask,
    canary_task,
)
from fleetrank.device_agents.errors import BadOutputError, NotFitError, UnfitConditionsError

CANARY_LIMIT_S = 120.0
CANARY_POLICY = MeasurePolicy(max_time_s=5.0, energy_s=0.0)


def canary_ns(
    canary: CanaryTask, measure: Callable[[MeasureTask], Measurement], tolerance: float
) -> int:
    """Measures the canary; returns its latency.

    Raises:
        NotFitError: it deviates more, slower or faster, than the device's noise explains.
        UnfitConditionsError: it could not be measured.
        BadOutputError: the answer has no latency.
    """
    path, sha256 = canary.artifact_path, canary.artifact_sha256
    seen = measure(canary_task(path, sha256, canary.affinity, CANARY_POLICY, CANARY_LIMIT_S))
    if seen.failure is not None:
        raise UnfitConditionsError(
            f"the canary model could not be measured: {seen.failure.message}", seen.failure.remedy
        )
    if seen.latency_ns is None:
        raise BadOutputError("the answer about the canary has no latency", "try again")
    ratio = canary.deviation(seen.latency_ns, tolerance)
    if ratio is not None:
        raise NotFitError(
            f"the canary model took {ratio:.2f} times its registered latency",
            "let the device cool down and end its other programs; if its settings were changed, "
            "register it again",
        )
    return seen.latency_ns


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
    is_empty = found is None and latency_ns is None
    return None if is_empty else replace(found or Conditions(), canary_ns=latency_ns)

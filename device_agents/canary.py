"""The canary of a device: a small model of known latency, before and after some repeats."""

from collections.abc import Callable, Sequence
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


def between_canaries(
    canary: CanaryTask | None,
    measure_canary: Callable[[MeasureTask], Measurement],
    tolerance: float,
    measure: Callable[[], Sequence[Measurement]],
) -> list[Measurement]:
    """Measures, with the canary before and after where it is due; raises as `canary_ns`."""

    def latency_ns(when: str) -> int | None:
        if canary is None or not getattr(canary, when):
            return None
        return canary_ns(canary, measure_canary, tolerance)

    before_ns, found, after_ns = latency_ns("runs_before"), measure(), latency_ns("runs_after")
    return [
        replace(
            one,
            conditions_before=_with(one.conditions_before, before_ns),
            conditions_after=_with(one.conditions_after, after_ns),
        )
        for one in found
    ]


def _with(found: Conditions | None, latency_ns: int | None) -> Conditions | None:
    is_empty = found is None and latency_ns is None
    return None if is_empty else replace(found or Conditions(), canary_ns=latency_ns)

"""Decides whether a repeat is valid, from the phone's state before and after and its samples. Pure.

An invalid repeat is stored as a failed row and measured again; no mean includes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fleetrank.device_agents.android.state.cores import Core
from fleetrank.device_agents.android.state.phone_conditions import PhoneConditions
from fleetrank.device_agents.android.state.readiness import PhoneRules
from fleetrank.device_agents.timing.flags import drift_share
from fleetrank.foundation.vocabulary import Flag

NOISE_FACTOR = 3.0
"""A deviation of three times the spread of the registration runs is not noise."""

MIN_DRIFT_SAMPLES = 30
"""Ten samples per third: with fewer, random scatter exceeds a drift that justifies a new run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryReading:
    """The latency of the canary model now, compared with its registration.

    Attributes:
        ratio: its median now over its median at registration.
        spread: difference of its medians at registration as a share of their mean.
    """

    ratio: float
    spread: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """Why a repeat is invalid (empty: it is valid) and which flags its row gets."""

    reasons: tuple[str, ...]
    flags: tuple[Flag, ...]

    @property
    def is_valid(self) -> bool:
        """Whether the repeat is valid."""
        return not self.reasons


def judge_validity(
    before: PhoneConditions,
    after: PhoneConditions,
    rules: PhoneRules,
    *,
    samples_ns: Sequence[int] = (),
    canary: CanaryReading | None = None,
) -> Validity:
    """Judges one repeat; an unknown value has no influence.

    Args:
        before: the conditions at the start, ready by `judge_readiness`.
        after: the conditions at the end.
        rules: the thresholds.
        samples_ns: empty if the program prints only a summary.
        canary: `None` if it has not run since.
    """
    drift = drift_share(samples_ns) if len(samples_ns) >= MIN_DRIFT_SAMPLES else None
    slowed = _throttling(before, after, rules)
    reasons = [*slowed]
    if drift is not None and drift > rules.max_drift:
        reasons.append(f"its latency drifted by {100 * drift:.0f} % over the run")
    if canary is not None and is_canary_off(canary, rules):
        reasons.append(f"the canary model took {canary.ratio:.2f} times its registered latency")
    if None not in (before.boot_id, after.boot_id) and before.boot_id != after.boot_id:
        reasons.append("the phone restarted")
    doubts = {
        Flag.DRIFT: drift is not None and drift > rules.max_drift,
        Flag.THROTTLED: bool(slowed),
        Flag.HOT: _is_hot(after, rules),
    }
    return Validity(
        reasons=tuple(reasons), flags=tuple(flag for flag in Flag if doubts.get(flag, False))
    )


def is_canary_off(canary: CanaryReading, rules: PhoneRules) -> bool:
    """Whether the canary deviates more, slower or faster, than the phone's noise explains."""
    noise = NOISE_FACTOR * (canary.spread or 0.0)
    return abs(canary.ratio - 1) > max(rules.min_canary_tolerance, noise)


def _throttling(before: PhoneConditions, after: PhoneConditions, rules: PhoneRules) -> list[str]:
    reasons = []
    share = _lowest_fall(before.cores, after.cores)
    if share is not None and share < rules.min_cap_share:
        reasons.append(f"the allowed clock of a core fell to {100 * share:.0f} % during the run")
    status_before = before.thermal.status if before.thermal else None
    status_after = after.thermal.status if after.thermal else None
    if status_after is not None and status_after > max(
        rules.max_thermal_status, status_before or 0
    ):
        reasons.append(f"the thermal status rose to {status_after} during the run")
    return reasons


def _lowest_fall(before: Sequence[Core], after: Sequence[Core]) -> float | None:
    caps = {core.number: core.cap_khz for core in before if core.cap_khz is not None}
    return min(
        (
            core.cap_khz / caps[core.number]
            for core in after
            if core.cap_khz is not None and core.number in caps
        ),
        default=None,
    )


def _is_hot(seen: PhoneConditions, rules: PhoneRules) -> bool:
    return seen.battery_temp_c is not None and seen.battery_temp_c > rules.max_battery_temp_c

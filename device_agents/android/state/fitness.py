"""Judges a phone: is it ready for a repeat, and was its state valid during the repeat."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fleetrank.device_agents.android.state.phone_conditions import PhoneConditions
from fleetrank.device_agents.android.state.run_clocks import UNSEEN, RunClocks
from fleetrank.device_agents.contract.task import deviates
from fleetrank.device_agents.timing.flags import drift_share
from fleetrank.foundation.vocabulary import Flag


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneRules:
    """When a phone is ready, and when a measurement on it is valid.

    Attributes:
        min_battery_percent: below it systems save power. Source: FAI-PEP's limit.
        max_battery_temp_c: Source: react-native-executorch issue 1363, its benchmark's limit.
        max_thermal_status: 0 none, 1 light, 2 moderate. Source: source.android.com/docs/core/power/
            thermal-mitigation; from 1 on, the user interface must reduce its work.
        min_cap_share: the allowed clock during a repeat as a share of what it was under load at
            registration, and before in the repeat. Not at rest: many phones lower it there to 40
            to 66 % (Exynos, MediaTek; pytorch/cpuinfo's mocks). Source: cactus issue 494, where
            a drop of 15 % counts as throttling.
        max_wait_s: for cooling down and charging. Source: twice the pause of the MLPerf mobile app
            (issue 390).
        poll_s: between two checks; each wakes the phone for some tenths of a second.
        max_drift: between first and last third of the samples; five times the flag's threshold,
            because a row above it is measured again.
        min_canary_tolerance: least accepted deviation of the canary; the tolerance is larger on a
            phone whose runs at registration differed.
    """

    min_battery_percent: float = 30.0
    max_battery_temp_c: float = 37.0
    max_thermal_status: int = 0
    min_cap_share: float = 0.85
    max_wait_s: float = 600.0
    poll_s: float = 10.0
    max_drift: float = 0.10
    min_canary_tolerance: float = 0.10


class Verdict(StrEnum):
    """What to do with the phone now."""

    READY = "ready"
    WAIT = "wait"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """The verdict and, unless it is `ready`, the reason and a remedy."""

    verdict: Verdict
    reason: str = ""
    remedy: str = ""


READY = Readiness(verdict=Verdict.READY)


def judge_readiness(seen: PhoneConditions, rules: PhoneRules) -> Readiness:
    """Judges a phone by the known values; an unknown value has no influence.

    Problems that waiting cannot solve are checked first, to avoid a useless wait.
    """
    findings = (_overrides(seen), _battery(seen, rules), *_heat(seen, rules), *_power(seen))
    found = [finding for finding in findings if finding is not None]
    refused = [finding for finding in found if finding.verdict is Verdict.REFUSE]
    return next(iter(refused + found), READY)


def _overrides(seen: PhoneConditions) -> Readiness | None:
    if seen.thermal is not None and seen.thermal.is_overridden:
        return Readiness(
            verdict=Verdict.REFUSE,
            reason="its thermal status was set manually (IsStatusOverride)",
            remedy="run `adb shell cmd thermalservice reset`",
        )
    if seen.battery is not None and seen.battery.is_overridden:
        return Readiness(
            verdict=Verdict.REFUSE,
            reason="its battery readings were set manually (UPDATES STOPPED)",
            remedy="run `adb shell dumpsys battery reset`",
        )
    return None


def _battery(seen: PhoneConditions, rules: PhoneRules) -> Readiness | None:
    battery = seen.battery
    if battery is None or battery.percent is None:
        return None
    if battery.percent >= rules.min_battery_percent:
        return None
    level = f"its battery is at {battery.percent:.0f} %, below {rules.min_battery_percent:.0f} %"
    if battery.is_charging:
        return Readiness(verdict=Verdict.WAIT, reason=level, remedy="let it charge")
    return Readiness(
        verdict=Verdict.REFUSE, reason=f"{level}, and it is not charging", remedy="charge it"
    )


def _heat(seen: PhoneConditions, rules: PhoneRules) -> tuple[Readiness | None, ...]:
    status = seen.thermal.status if seen.thermal else None
    return (
        _wait_if(
            status is not None and status > rules.max_thermal_status,
            f"its thermal status is {status}, above {rules.max_thermal_status}",
            "let it cool down, out of the sun and without its case",
        ),
        _wait_if(
            seen.battery_temp_c is not None and seen.battery_temp_c > rules.max_battery_temp_c,
            f"its battery is at {seen.battery_temp_c} C, above {rules.max_battery_temp_c} C",
            "let it cool down, out of the sun and without its case",
        ),
    )


def _power(seen: PhoneConditions) -> tuple[Readiness | None, ...]:
    return (
        _wait_if(
            bool(seen.is_saving),
            "its battery saver is on",
            "switch it off, or connect the phone to a charger",
        ),
        _wait_if(bool(seen.is_dozing), "it dozes (deep idle)", "wake it, or charge it"),
    )


def _wait_if(is_so: bool, reason: str, remedy: str) -> Readiness | None:
    return Readiness(verdict=Verdict.WAIT, reason=reason, remedy=remedy) if is_so else None


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
    """Why a repeat is invalid (empty: it is valid) and which flags its row gets.

    Attributes:
        slowed: the reasons that a sustained run has to show: the phone became slower in it.
    """

    reasons: tuple[str, ...]
    flags: tuple[Flag, ...]
    slowed: tuple[str, ...] = ()

    def faults(self, *, is_sustained: bool) -> tuple[str, ...]:
        """The reasons that make a repeat invalid."""
        ignored = self.slowed if is_sustained else ()
        return tuple(reason for reason in self.reasons if reason not in ignored)

    @property
    def is_valid(self) -> bool:
        """Whether an ordinary repeat is valid."""
        return not self.reasons


def judge_validity(
    before: PhoneConditions,
    after: PhoneConditions,
    rules: PhoneRules,
    *,
    samples_ns: Sequence[int] = (),
    canary: CanaryReading | None = None,
    clocks: RunClocks = UNSEEN,
) -> Validity:
    """Judges one repeat; an unknown value has no influence.

    Args:
        before: the conditions at the start, ready by `judge_readiness`.
        after: the conditions at the end.
        rules: the thresholds.
        samples_ns: empty if the program prints only a summary.
        canary: `None` if it has not run since.
        clocks: of the cores during the repeat.
    """
    drift = drift_share(samples_ns) if len(samples_ns) >= MIN_DRIFT_SAMPLES else None
    slowed = [*_limited(clocks, rules), *_throttling(before, after, rules)]
    reasons = [*slowed]
    if drift is not None and drift > rules.max_drift:
        reasons.append(f"its latency drifted by {100 * drift:.0f} % over the run")
    if canary is not None and is_canary_off(canary, rules):
        reasons.append(f"the canary model took {canary.ratio:.2f} times its registered latency")
    n_slowed = len(reasons)
    if None not in (before.boot_id, after.boot_id) and before.boot_id != after.boot_id:
        reasons.append("the phone restarted")
    if after.is_saving and before.is_saving is False:
        reasons.append("battery saver was switched on during the run")
    doubts = {
        Flag.DRIFT: drift is not None and drift > rules.max_drift,
        Flag.THROTTLED: bool(slowed),
        Flag.HOT: _is_hot(after, rules),
        Flag.SCREEN_OFF: False in (before.is_screen_on, after.is_screen_on),
    }
    return Validity(
        reasons=tuple(reasons),
        slowed=tuple(reasons[:n_slowed]),
        flags=tuple(flag for flag in Flag if doubts.get(flag, False)),
    )


def is_canary_off(canary: CanaryReading, rules: PhoneRules) -> bool:
    """Whether the canary deviates more, slower or faster, than the phone's noise explains."""
    return deviates(canary.ratio, canary.spread, rules.min_canary_tolerance)


def _limited(clocks: RunClocks, rules: PhoneRules) -> list[str]:
    reasons = []
    fall, share = clocks.lowest_fall, clocks.registered_share
    if fall is not None and fall < rules.min_cap_share:
        reasons.append(f"the allowed clock of a core fell to {100 * fall:.0f} % during the run")
    if share is not None and share < rules.min_cap_share:
        reasons.append(
            f"its clocks were limited to {100 * share:.0f} % of what they were at registration"
        )
    return reasons


def _throttling(before: PhoneConditions, after: PhoneConditions, rules: PhoneRules) -> list[str]:
    reasons = []
    status_before = before.thermal.status if before.thermal else None
    status_after = after.thermal.status if after.thermal else None
    if status_after is not None and status_after > max(
        rules.max_thermal_status, status_before or 0
    ):
        reasons.append(f"the thermal status rose to {status_after} during the run")
    return reasons


def _is_hot(seen: PhoneConditions, rules: PhoneRules) -> bool:
    return seen.battery_temp_c is not None and seen.battery_temp_c > rules.max_battery_temp_c

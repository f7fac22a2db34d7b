"""Decides whether a phone is ready to be measured: measure, wait, or reject. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from fleetrank.device_agents.android.state.phone_conditions import PhoneConditions


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneRules:
    """When a phone is ready, and when a measurement on it is valid.

    Attributes:
        min_battery_percent: below it systems save power. Source: FAI-PEP's limit.
        max_battery_temp_c: Source: react-native-executorch issue 1363, its benchmark's limit.
        max_thermal_status: 0 none, 1 light, 2 moderate. Source: source.android.com/docs/core/power/
            thermal-mitigation; from 1 on, the user interface must reduce its work.
        min_cap_share: the allowed clock as a share of the highest. Source: cactus issue 494, where
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
    findings = (_overrides(seen), _battery(seen, rules), *_heat(seen, rules))
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
    share = seen.cap_share
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
        _wait_if(
            share is not None and share < rules.min_cap_share,
            f"its clocks are limited to {100 * (share or 0):.0f} % of the highest",
            "let it cool down; switch its battery saver off",
        ),
    )


def _wait_if(is_so: bool, reason: str, remedy: str) -> Readiness | None:
    return Readiness(verdict=Verdict.WAIT, reason=reason, remedy=remedy) if is_so else None

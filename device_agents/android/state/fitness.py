"""Judges a phone: is it ready for a repeat, and was its state valid during the repeat."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fleetrank.device_agents.android.phone import Phone, read_sections
from fleetrank.device_agents.android.state.dumpsys import (
    Battery,
    Thermal,
    parse_battery,
    parse_is_dozing,
    parse_is_saving,
    parse_is_screen_on,
    parse_thermal,
)
from fleetrank.device_agents.android.state.phone_cores import CORES_SCRIPT, Core, parse_cores
from fleetrank.device_agents.android.state.run_clocks import UNSEEN, RunClocks
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.measurement import Conditions
from fleetrank.device_agents.errors import NotFitError
from fleetrank.device_agents.flags import drift_share
from fleetrank.device_agents.linux.conditions import parse_available_memory, parse_load
from fleetrank.foundation.vocabulary import Flag

READ_TIMEOUT_S = 30.0
# A few lines of the power service are needed; some phones print more than a probe may read.
_CONDITIONS_SCRIPT = f"""
{{
section load; cat /proc/loadavg
section memory; cat /proc/meminfo
section boot; cat /proc/sys/kernel/random/boot_id
section battery; dumpsys battery
section thermal; dumpsys thermalservice
section power; dumpsys power | grep -e mWakefulness -e '^ *mLowPowerModeEnabled=' \\
  -e '^ *Enabled=' -e '^ *mDeviceIdleMode='
}} 2>/dev/null
{CORES_SCRIPT}
"""
_BOOT = re.compile(r"[0-9a-f-]{36}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneConditions:
    """The conditions of a phone at one moment; `None` means unknown.

    Attributes:
        boot_id: changes with every restart.
        is_saving: battery saver is on, which limits clocks.
        is_dozing: deep idle: the phone sleeps between maintenance windows.
    """

    battery: Battery | None
    thermal: Thermal | None
    cores: tuple[Core, ...]
    is_screen_on: bool | None
    load_1min: float | None
    available_memory_bytes: int | None
    boot_id: str | None
    is_saving: bool | None = None
    is_dozing: bool | None = None

    @property
    def battery_temp_c(self) -> float | None:
        """Temperature of the battery, from the battery service or else the thermal service."""
        if self.battery is not None and self.battery.temp_c is not None:
            return self.battery.temp_c
        return None if self.thermal is None else self.thermal.battery_c


NOTHING = PhoneConditions(
    battery=None, thermal=None, cores=(), is_screen_on=None, load_1min=None,
    available_memory_bytes=None, boot_id=None,
)  # fmt: skip
"""Of a phone that reports nothing."""


def read_phone_conditions(
    phone: Phone, stop_requested: StopRequested = never_stop
) -> PhoneConditions:
    """Reads everything in one call; raises the same errors as `Phone.shell`."""
    sections = read_sections(
        phone, _CONDITIONS_SCRIPT, timeout_s=READ_TIMEOUT_S, stop_requested=stop_requested
    )
    return conditions_of_sections(sections)


def conditions_of_sections(sections: Mapping[str, str]) -> PhoneConditions:
    """Reads the sections of the script's output; a missing section means unknown.

    Raises:
        BadOutputError: an impossible figure.
    """
    boot, power = sections.get("boot", "").strip(), sections.get("power", "")
    return PhoneConditions(
        battery=parse_battery(sections.get("battery", "")),
        thermal=parse_thermal(sections.get("thermal", "")),
        cores=parse_cores(sections.get("cores", "")),
        is_screen_on=parse_is_screen_on(power),
        is_saving=parse_is_saving(power),
        is_dozing=parse_is_dozing(power),
        load_1min=parse_load(sections.get("load", "")),
        available_memory_bytes=parse_available_memory(sections.get("memory", "")),
        boot_id=boot if _BOOT.fullmatch(boot) else None,
    )


def to_conditions(seen: PhoneConditions, canary_ns: int | None = None) -> Conditions:
    """Returns what a row stores; `temp_c` is the hottest of CPU, GPU and battery."""
    thermal, battery = seen.thermal, seen.battery
    sensors = (seen.battery_temp_c, *((thermal.cpu_c, thermal.gpu_c) if thermal else ()))
    now = [core.now_khz / 1000 for core in seen.cores if core.now_khz is not None]
    governors = {core.governor for core in seen.cores if core.governor is not None}
    return Conditions(
        load_1min=seen.load_1min,
        clock_mhz=sum(now) / len(now) if now else None,
        clock_max_mhz=_highest_mhz(core.max_khz for core in seen.cores),
        clock_cap_mhz=_highest_mhz(core.cap_khz for core in seen.cores),
        governor=",".join(sorted(governors)) or None,
        temp_c=max((value for value in sensors if value is not None), default=None),
        available_memory_bytes=seen.available_memory_bytes,
        battery_percent=battery.percent if battery else None,
        thermal_status=thermal.status if thermal else None,
        is_charging=battery.is_charging if battery else None,
        is_screen_on=seen.is_screen_on,
        canary_ns=canary_ns,
    )


def _highest_mhz(clocks_khz: Iterable[int | None]) -> float | None:
    return max((khz / 1000 for khz in clocks_khz if khz is not None), default=None)


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


def why_unfit(seen: PhoneConditions, rules: PhoneRules) -> NotFitError | None:
    """What stops a repeat now, by the known values; first what only a person can change.

    The caller looks again, for at most `max_wait_s`: a phone can cool down, and be charged.
    """
    thermal, battery = seen.thermal, seen.battery
    status = thermal.status if thermal else None
    percent = battery.percent if battery else None
    is_low = percent is not None and percent < rules.min_battery_percent
    is_charging = battery is not None and battery.is_charging
    charge = "let it charge" if is_charging else "connect it to a charger"
    cool = "let it cool down, out of the sun and without its case"
    for is_so, reason, remedy in (
        (thermal is not None and thermal.is_overridden,
         "its thermal status was set manually (IsStatusOverride)",
         "run `adb shell cmd thermalservice reset`"),
        (battery is not None and battery.is_overridden,
         "its battery readings were set manually (UPDATES STOPPED)",
         "run `adb shell dumpsys battery reset`"),
        (is_low,
         f"its battery is at {percent or 0:.0f} %, below {rules.min_battery_percent:.0f} %"
         + ("" if is_charging else ", and it is not charging"), charge),
        (status is not None and status > rules.max_thermal_status,
         f"its thermal status is {status}, above {rules.max_thermal_status}", cool),
        (_is_hot(seen, rules),
         f"its battery is at {seen.battery_temp_c} C, above {rules.max_battery_temp_c} C", cool),
        (bool(seen.is_saving), "its battery saver is on",
         "switch it off, or connect the phone to a charger"),
        (bool(seen.is_dozing), "it dozes (deep idle)", "wake it, or charge it"),
    ):  # fmt: skip
        if is_so:
            return NotFitError(reason, remedy, rules.poll_s, rules.max_wait_s)
    return None


MIN_DRIFT_SAMPLES = 30
"""Ten samples per third: with fewer, random scatter exceeds a drift that justifies a new run."""


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


def judge_validity(
    before: PhoneConditions,
    after: PhoneConditions,
    rules: PhoneRules,
    *,
    samples_ns: Sequence[int] = (),
    canary_off: float | None = None,
    clocks: RunClocks = UNSEEN,
) -> Validity:
    """Judges one repeat; an unknown value has no influence.

    Args:
        before: the conditions at the start, fit by `why_unfit`.
        after: the conditions at the end.
        rules: the thresholds.
        samples_ns: empty if the program prints only a summary.
        canary_off: as of `CanaryTask.deviation`; `None` also if it has not run since.
        clocks: of the cores during the repeat.
    """
    drift = drift_share(samples_ns) if len(samples_ns) >= MIN_DRIFT_SAMPLES else None
    slowed = [*_limited(clocks, rules), *_throttling(before, after, rules)]
    reasons = [*slowed]
    if drift is not None and drift > rules.max_drift:
        reasons.append(f"its latency drifted by {100 * drift:.0f} % over the run")
    if canary_off is not None:
        reasons.append(f"the canary model took {canary_off:.2f} times its registered latency")
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
    was, now = ((one.thermal.status or 0) if one.thermal else 0 for one in (before, after))
    is_worse = now > max(rules.max_thermal_status, was)
    return [f"the thermal status rose to {now} during the run"] if is_worse else []


def _is_hot(seen: PhoneConditions, rules: PhoneRules) -> bool:
    return seen.battery_temp_c is not None and seen.battery_temp_c > rules.max_battery_temp_c

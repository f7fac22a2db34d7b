"""Parses the output of `dumpsys`; unknown values are `None`.

Source: `BatteryService.java`, `ThermalManagerService.java` and `PowerManagerService.java` of
frameworks/base, Android 10 to 15; types of `android.hardware.thermal` 2.0.
"""

import re
from dataclasses import dataclass

from fleetrank.device_agents.device_output import (
    BATTERY_PERCENT,
    BATTERY_SCALE,
    TEMP_C,
    THERMAL_STATUS,
    lines_of,
    value_of,
    whole_number,
)

_NO_HAL = "HAL Ready: false"
"""Without the HAL, the status is the 0 that the service starts with."""
_HAL = "Current temperatures from HAL:"
_TEMPERATURE = re.compile(
    r"Temperature\{mValue=(-?\d{1,6}(?:\.\d{1,9})?),\s*mType=(-?\d{1,4})[,}]", re.ASCII
)
_SENSOR = "Temperature{"
_CPU, _GPU, _BATTERY = 0, 1, 2
_CHARGING, _FULL = "2", "5"
"""BatteryManager.BATTERY_STATUS_CHARGING and _FULL."""
_UPDATES_STOPPED = "UPDATES STOPPED"
"""What `dumpsys battery set` and `unplug` write until `reset`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Battery:
    """The battery.

    Attributes:
        is_charging: also true for a full battery on the charger.
        is_overridden: a test set the values; they are not the battery's own values.
    """

    percent: float | None = None
    temp_c: float | None = None
    is_charging: bool | None = None
    is_overridden: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Thermal:
    """Thermal status 0 (none) to 6 (shutdown) and the hottest sensor of each kind, now."""

    status: int | None = None
    is_overridden: bool = False
    cpu_c: float | None = None
    gpu_c: float | None = None
    battery_c: float | None = None


def parse_battery(text: str) -> Battery | None:
    """Reads `dumpsys battery`; `None` without a battery or without access.

    Raises:
        BadOutputError: an impossible charge or temperature.
    """
    fields = _fields(text)
    if fields.get("present") == "false" or not {"level", "temperature", "status"} & set(fields):
        return None
    status = fields.get("status")
    return Battery(
        percent=_percent(fields.get("level", ""), fields.get("scale", "100")),
        temp_c=_battery_c(fields.get("temperature", "")),
        is_charging=status in (_CHARGING, _FULL) if status else None,
        is_overridden=_UPDATES_STOPPED in text,
    )


def parse_thermal(text: str) -> Thermal | None:
    """Reads `dumpsys thermalservice` (Android 10 and later); `None` without access or HAL.

    A status that a person set counts without a HAL, too.

    Reads temperatures under "Current temperatures from HAL": cached ones may be hours old.

    Raises:
        BadOutputError: a status that does not exist.
    """
    reported = value_of(text, "Thermal Status")
    status = None if reported is None else whole_number(reported)
    override = value_of(text, "IsStatusOverride")
    if status is None and override not in ("true", "false"):
        return None
    if _NO_HAL in text and override != "true":
        return None
    if status is not None:
        THERMAL_STATUS.require(status, f"Thermal Status: {reported}")
    hottest = _hottest(text)
    return Thermal(
        status=status,
        is_overridden=override == "true",
        cpu_c=hottest.get(_CPU),
        gpu_c=hottest.get(_GPU),
        battery_c=hottest.get(_BATTERY),
    )


def parse_is_screen_on(text: str) -> bool | None:
    """Whether the phone is awake, by `dumpsys power`; some builds print `mWakefulnessRaw` only."""
    reported = value_of(text, "mWakefulness", "=") or value_of(text, "mWakefulnessRaw", "=")
    return reported == "Awake" if reported and reported.isalpha() else None


def parse_is_saving(text: str) -> bool | None:
    """Whether battery saver is on, by `dumpsys power`; `None` if the dump does not say it.

    Source: PowerManagerService of Android 8 (`mLowPowerModeEnabled`), and the section "Battery
    saver state machine" (`Enabled`) since Android 9.
    """
    return _is_true(value_of(text, "mLowPowerModeEnabled", "=") or value_of(text, "Enabled", "="))


def parse_is_dozing(text: str) -> bool | None:
    """Whether the phone is in deep idle, by `dumpsys power`; `None` if the dump does not say it."""
    return _is_true(value_of(text, "mDeviceIdleMode", "="))


def _is_true(word: str | None) -> bool | None:
    return word == "true" if word in ("true", "false") else None


def _hottest(text: str) -> dict[int, float]:
    _, heading, rest = text.partition(_HAL)
    hottest: dict[int, float] = {}
    for line in lines_of(rest.partition("\n")[2] if heading else ""):
        if not line.lstrip().startswith(_SENSOR):
            break  # the next heading: cooling devices, thresholds
        match = _TEMPERATURE.search(line)
        if match is None:
            continue  # a sensor without a value now: the HAL reports NaN
        value, kind = float(match[1]), int(match[2])
        # This is not an error: some sensors are not connected and report -99.9, or thousands.
        if TEMP_C.holds(value):
            hottest[kind] = max(value, hottest.get(kind, value))
    return hottest


def _fields(text: str) -> dict[str, str]:
    """Names and one-word values. The first of each name counts: makers append sections."""
    fields: dict[str, str] = {}
    for line in (line for line in lines_of(text) if ":" in line):
        name, _, value = line.partition(":")
        words = value.split()
        letters = name.replace(" ", "").strip()
        if len(words) == 1 and letters.isascii() and letters.isalpha():
            fields.setdefault(name.strip(), words[0])
    return fields


def _percent(level: str, scale: str) -> float | None:
    charge, full = whole_number(level), whole_number(scale)
    if charge is None or full is None:
        return None
    read = f"level: {level}, scale: {scale}"
    BATTERY_SCALE.require(full, read)
    if full == 0:
        return None
    percent = 100 * charge / full
    BATTERY_PERCENT.require(percent, read)
    return percent


def _battery_c(tenths: str) -> float | None:
    number = whole_number(tenths)
    if number is None:
        return None
    TEMP_C.require(number / 10, f"temperature: {tenths}")
    return number / 10

"""Turns what `dumpsys` prints into values; what it does not tell is `None`.

Source: `BatteryService.java`, `ThermalManagerService.java` and `PowerManagerService.java` of
    frameworks/base, Android 10 to 15; types of `android.hardware.thermal` 2.0.
"""

import re
from dataclasses import dataclass

_FIELD = re.compile(r"^\s*([A-Za-z][A-Za-z ]*?)\s*:\s*(\S+)\s*$", re.MULTILINE | re.ASCII)
_STATUS = re.compile(r"^\s*Thermal Status:\s*(-?\d{1,3})\s*$", re.MULTILINE | re.ASCII)
_OVERRIDE = re.compile(r"^\s*IsStatusOverride:\s*(true|false)\s*$", re.MULTILINE)
_HAL = "Current temperatures from HAL:"
_TEMPERATURE = re.compile(
    r"Temperature\{mValue=(-?\d{1,6}(?:\.\d{1,9})?),\s*mType=(-?\d{1,4})[,}]", re.ASCII
)
_WAKEFULNESS = re.compile(r"^\s*mWakefulness=(\w+)\s*$", re.MULTILINE | re.ASCII)
_CPU, _GPU, _BATTERY, _SKIN = 0, 1, 2, 3
_PLAUSIBLE_C = (-40.0, 150.0)
"""Sensors without a reading say -99.9, or thousands."""
_CHARGING, _FULL = "2", "5"
"""BatteryManager.BATTERY_STATUS_CHARGING and _FULL."""
_UPDATES_STOPPED = "UPDATES STOPPED"
"""What `dumpsys battery set` and `unplug` leave behind until `reset`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Battery:
    """The battery.

    Attributes:
        is_charging: full on the charger counts.
        is_overridden: a test set the values; they are not the battery's.
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
    skin_c: float | None = None


def parse_battery(text: str) -> Battery | None:
    """Reads `dumpsys battery`; `None` when there is no battery or no access."""
    fields = dict(reversed(_FIELD.findall(text)))  # the first: makers append sections of their own
    if fields.get("present") == "false" or not {"level", "temperature", "status"} & set(fields):
        return None
    level, scale = _number(fields.get("level")), _number(fields.get("scale", "100"))
    tenths = _number(fields.get("temperature"))
    status = fields.get("status")
    return Battery(
        percent=100 * level / scale if level is not None and scale else None,
        temp_c=_plausible(tenths / 10) if tenths is not None else None,
        is_charging=status in (_CHARGING, _FULL) if status else None,
        is_overridden=_UPDATES_STOPPED in text,
    )


def parse_thermal(text: str) -> Thermal | None:
    """Reads `dumpsys thermalservice` (Android 10 on); `None` without access.

    Temperatures are those under "Current temperatures from HAL": the cached ones may be hours old.
    """
    status = _STATUS.search(text)
    override = _OVERRIDE.search(text)
    if status is None and override is None:
        return None
    hottest = _hottest(text)
    return Thermal(
        status=int(status[1]) if status else None,
        is_overridden=override is not None and override[1] == "true",
        cpu_c=hottest.get(_CPU),
        gpu_c=hottest.get(_GPU),
        battery_c=hottest.get(_BATTERY),
        skin_c=hottest.get(_SKIN),
    )


def parse_is_screen_on(text: str) -> bool | None:
    """Whether the phone is awake, by `dumpsys power`."""
    match = _WAKEFULNESS.search(text)
    return None if match is None else match[1] == "Awake"


def _hottest(text: str) -> dict[int, float]:
    _, heading, rest = text.partition(_HAL)
    hottest: dict[int, float] = {}
    for line in rest.split("\n")[1:] if heading else ():
        match = _TEMPERATURE.search(line)
        if match is None:
            break  # the next heading: cooling devices, thresholds
        value, kind = _plausible(float(match[1])), int(match[2])
        if value is not None:
            hottest[kind] = max(value, hottest.get(kind, value))
    return hottest


def _number(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"-?\d{1,9}", text, re.ASCII) else None


def _plausible(temp_c: float) -> float | None:
    return temp_c if _PLAUSIBLE_C[0] <= temp_c <= _PLAUSIBLE_C[1] else None

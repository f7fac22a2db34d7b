"""Reads the conditions of a phone."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleetrank.device_agents.android.adb.phone import Phone, read_sections
from fleetrank.device_agents.android.state.cores import (
    CORES_SCRIPT,
    Core,
    parse_cores,
)
from fleetrank.device_agents.android.state.dumpsys import (
    Battery,
    Thermal,
    parse_battery,
    parse_is_dozing,
    parse_is_saving,
    parse_is_screen_on,
    parse_thermal,
)
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.measurement import Conditions
from fleetrank.device_agents.host.conditions import parse_available_memory, parse_load

READ_TIMEOUT_S = 30.0
# A few lines of the power service are needed; some phones print more than a probe may read.
_SCRIPT = f"""
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


def read_phone_conditions(
    phone: Phone, stop_requested: StopRequested = never_stop
) -> PhoneConditions:
    """Reads everything in one call; raises the same errors as `Phone.shell`."""
    sections = read_sections(
        phone, _SCRIPT, timeout_s=READ_TIMEOUT_S, stop_requested=stop_requested
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

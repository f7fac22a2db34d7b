"""What a phone says about its power: charge, current and voltage of the battery, and its rails.

Units differ by maker: by the platform's definition charge is in microampere-hours and current in
microampere, but many phones report thousandths (perfetto issue 1441, home-assistant/android issue
2846), and the sign of a current that leaves the battery is free. A phone's battery has 1 to 20 Ah
and its current is 20 mA to 20 A while its screen is on, so the size of a value decides its unit.
One current can be smaller for a moment: the largest of a phone decides the unit of all of them.

Source: `BatteryService.java` of frameworks/base; Documentation/ABI/testing/sysfs-class-power;
    `energy_value` of Pixel 6 and newer, a power meter in the chip that supplies the rails (ODPM).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fleetrank.device_agents.android.state.dumpsys import parse_battery
from fleetrank.device_agents.device_output import lines_of, value_of, whole_number

LOOK_S = 1.0
"""Fuel gauges renew their values about once a second; a look costs some 20 ms of one core."""
MAX_ENERGY_S = 120.0
"""A battery that counts in mAh has 20 steps in two minutes at 2 W."""
FILES_SCRIPT = """
section supply
{
for name in status charge_counter current_now voltage_now; do
  read -r value < "/sys/class/power_supply/battery/$name" && echo "$name $value"
done
} 2>/dev/null
section rails
for file in /sys/bus/iio/devices/iio:device*/energy_value; do
  [ -r "$file" ] && while read -r line; do echo "$line"; done < "$file"
done 2>/dev/null
"""
FULL_SCRIPT = f"""{FILES_SCRIPT}
section battery
dumpsys battery 2>/dev/null
"""
"""Files are read without a process; `dumpsys` costs a phone some tens of milliseconds."""
_RAIL = re.compile(r"CH\d{1,3}\(T=\d{1,18}\)\[([A-Z0-9_]{1,40})\], (\d{1,18})", re.ASCII)
_COMPUTE = re.compile(r"CPUCL|G3D|TPU|VDD_INT|MIF|VDD2|VDDQ", re.ASCII)
"""Rails of processors, GPU, TPU and memory; display, radio and the sums of others are left out.

Source: the rails of Pixel 6, in `enabled_rails` with the names of their subsystems."""
_POWERED = re.compile(r"^ *(?:AC|USB|Wireless|Dock) powered: (true|false)", re.MULTILINE)
_MOST_MA = 20_000
_Number = TypeVar("_Number", int, float)
_DISCHARGING = ("3", "Discharging")
"""BatteryManager.BATTERY_STATUS_DISCHARGING, and the kernel's word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLook:
    """One look at the power of a phone; `None` means that the phone does not say it.

    Attributes:
        is_discharging: nothing charges the battery, so what leaves it is what the phone uses.
        charge_uah: charge in the battery; it falls.
        current: size of the current as the phone reports it; see `currents_ua`.
        rails_uj: energy through the rails of processors and memory since the phone's start.
    """

    is_discharging: bool | None
    charge_uah: float | None
    current: int | None
    voltage_mv: float | None
    rails_uj: float | None

    @property
    def has_source(self) -> bool:
        """Whether energy can be computed from looks like this one."""
        has_battery = self.charge_uah is not None or self.current is not None
        return self.rails_uj is not None or (has_battery and self.voltage_mv is not None)


_ONE_CELL_MV = 5_000
"""A lithium cell has at most 4.5 V."""


def parse_look(sections: Mapping[str, str], cells: int = 1) -> PowerLook:
    """Reads the output of a script; a value of the kernel's files comes before the service's.

    Args:
        sections: of the output.
        cells: of the battery, in series: such a phone reports its charge, and the voltage of one.
    """
    files = dict(_words(sections.get("supply", "")))
    dump = sections.get("battery", "")
    # Samsung prints its own readings in lower case after the standard ones.
    charge = (files.get("charge_counter"), value_of(dump, "Charge counter"))
    current = (files.get("current_now"), value_of(dump, "current now"))
    voltage = (files.get("voltage_now"), value_of(dump, "voltage"))
    return PowerLook(
        is_discharging=_is_discharging(files.get("status"), dump),
        charge_uah=_first(_charge_uah, charge),
        current=_first(_size, current),
        voltage_mv=_first(lambda number: _voltage_mv(number, cells), voltage),
        rails_uj=_rails_uj(sections.get("rails", "")),
    )


_LEAST_PERCENT = 20
"""Below this the charge is too small a share of the battery to tell its size."""


def full_charge_mah(dump: str) -> float | None:
    """What a full battery holds, by the charge and level in `dumpsys battery`; `None` if unknown.

    A phone with two cells in series mostly reports the charge that flows through both, half of
    what its maker states. `None` too where the voltage is that of two cells already.
    """
    battery, look = parse_battery(dump), parse_look({"battery": dump})
    percent = 0.0 if battery is None or battery.is_overridden else battery.percent or 0.0
    is_possible = percent >= _LEAST_PERCENT and (look.voltage_mv or 0) <= _ONE_CELL_MV
    return look.charge_uah / 10 / percent if look.charge_uah and is_possible else None


def _words(text: str) -> Iterator[tuple[str, str]]:
    for line in lines_of(text):
        name, _, value = line.strip().partition(" ")
        yield name, value.strip()


def currents_ua(reported: Sequence[int]) -> list[float]:
    """The currents that one phone reported, in microampere; its unit is one of two."""
    unit_ua = 1000.0 if max(reported, default=0) <= _MOST_MA else 1.0
    return [size * unit_ua for size in reported]


def _first(read: Callable[[int], _Number | None], texts: tuple[str | None, ...]) -> _Number | None:
    numbers = (whole_number(text) for text in texts if text is not None)
    values = (read(number) for number in numbers if number is not None)
    return next((value for value in values if value is not None), None)


def _charge_uah(number: int) -> float | None:
    """A charge of 100 mAh to 20 Ah; some phones report a constant, which never moves."""
    if 100 <= number <= 20_000:
        return number * 1000.0
    return float(number) if 100_000 <= number <= 20_000_000 else None


def _size(number: int) -> int | None:
    return abs(number) if abs(number) <= 1000 * _MOST_MA else None


def _voltage_mv(number: int, cells: int) -> float | None:
    """Of the whole battery: more than 5 V is that of two cells in series already."""
    mv = float(number) if number <= 10_000 else number / 1000
    if not 2_500 <= mv <= 10_000:
        return None
    return mv if mv > _ONE_CELL_MV else mv * max(1, cells)


def _is_discharging(status: str | None, dump: str) -> bool | None:
    powered = _POWERED.findall(dump)
    if "true" in powered:
        return False
    known = status or value_of(dump, "status")
    return None if known is None else known.startswith(_DISCHARGING)


def _rails_uj(text: str) -> float | None:
    found = [int(energy) for name, energy in _RAIL.findall(text) if _COMPUTE.search(name)]
    return float(sum(found)) if found else None

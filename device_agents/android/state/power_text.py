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
from dataclasses import dataclass, field
from typing import TypeVar

from fleetrank.device_agents.contract.agent import Cluster
from fleetrank.device_agents.device_output import (
    BATTERY_PERCENT,
    BATTERY_SCALE,
    CLOCK_MHZ,
    TEMP_C,
    THERMAL_STATUS,
    lines_of,
    value_of,
    whole_number,
)
from fleetrank.device_agents.host.cores import Design, clusters_by_kind, parse_designs
from fleetrank.foundation.cpus import parse_cpu_list

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


# Parses the output of `dumpsys`; unknown values are `None`.
#
# Source: `BatteryService.java`, `ThermalManagerService.java` and `PowerManagerService.java` of
#     frameworks/base, Android 10 to 15; types of `android.hardware.thermal` 2.0.

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


# Cores of a phone and their clocks.
#
# Source: Documentation/admin-guide/pm/cpufreq.rst of the Linux kernel: clocks are in kHz,
#     `cpuinfo_max_freq` is the hardware's limit, `scaling_max_freq` the limit allowed now.

CORES_SCRIPT = """
section cores
for core in /sys/devices/system/cpu/cpu[0-9]*; do
  line=${core##*/cpu}
  for fact in cpuinfo_max_freq scaling_max_freq scaling_cur_freq scaling_governor; do
    value=
    [ -r "$core/cpufreq/$fact" ] && read -r value < "$core/cpufreq/$fact"
    line="$line ${value:--}"
  done
  echo "$line"
done 2>/dev/null
"""
"""One line per core: number, highest clock, highest allowed, current, governor; `-` if unknown."""

_LINE = re.compile(r"(\d{1,4}) (\S+) (\S+) (\S+) (\S+)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """One core; clocks in kHz as the kernel gives them, `None` if unknown.

    Attributes:
        max_khz: the hardware's limit.
        cap_khz: the limit allowed now: thermal engines and battery savers lower it.
        now_khz: the current clock; an idle core runs at its lowest clock.
    """

    number: int
    max_khz: int | None = None
    cap_khz: int | None = None
    now_khz: int | None = None
    governor: str | None = None


def parse_cores(text: str) -> tuple[Core, ...]:
    """Reads the output of `CORES_SCRIPT`, sorted by core number; other lines are skipped.

    Raises:
        BadOutputError: a clock that no processor has.
    """
    matches = (_LINE.fullmatch(line.strip()) for line in lines_of(text) if line)
    cores = {
        int(match[1]): Core(
            number=int(match[1]),
            max_khz=_khz(match[2]),
            cap_khz=_khz(match[3]),
            now_khz=_khz(match[4]),
            governor=None if match[5] == "-" else match[5],
        )
        for match in matches
        if match is not None
    }
    return tuple(cores[number] for number in sorted(cores))


def _khz(text: str) -> int | None:
    """Parses a clock; an offline core shows 0, which is not a clock."""
    khz = whole_number(text)
    if khz is not None:
        CLOCK_MHZ.require(khz / 1000, f"{text} kHz")
    return khz or None


# Clusters of a phone: which cores are of one kind, which kind is fastest, which are offline.
#
# Two kinds can have one highest clock (Helio P60: 4 Cortex-A53 and 4 Cortex-A73 at 1989 MHz), and
# the fast cores of a phone at rest can be offline, without any clock (Nexus 5X). So the design of
# a core and its frequency policy decide, not its clock alone.
#
# Source: Documentation/admin-guide/pm/cpufreq.rst (`related_cpus`: all cores of a policy, also
#     those offline), Documentation/ABI/testing/sysfs-devices-system-cpu (`online`) of the Linux
# kernel.

TOPOLOGY_SCRIPT = """
section topology
{
read -r online < /sys/devices/system/cpu/online && echo "online $online"
for core in /sys/devices/system/cpu/cpu[0-9]*; do
  [ -r "$core/cpufreq/related_cpus" ] && read -r related < "$core/cpufreq/related_cpus" &&
    echo "related ${core##*/cpu} $related"
done
grep -e ^processor -e '^CPU implementer' -e '^CPU part' /proc/cpuinfo
} 2>/dev/null
"""
"""Cores online, the cores of each core's frequency policy, and the design of each core."""

_NUMBER = re.compile(r"\d{1,4}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What the kernel says about the cores of a phone beside their clocks.

    Attributes:
        online: numbers of the cores online; empty if unknown.
        policies: the cores that share a clock with a core, by its number, itself included.
        designs: of each core, by its number.
    """

    online: tuple[int, ...] = ()
    policies: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    designs: Mapping[int, Design] = field(default_factory=dict)


UNKNOWN = Topology()


def parse_topology(text: str) -> Topology:
    """Reads the output of `TOPOLOGY_SCRIPT`; other lines are skipped."""
    online: tuple[int, ...] = ()
    policies: dict[int, tuple[int, ...]] = {}
    for line in lines_of(text):
        words = line.split()
        if words[:1] == ["online"]:
            online = parse_cpu_list("".join(words[1:]))
        elif words[:1] == ["related"] and len(cpus := _numbers(words[1:])) > 1:
            policies[cpus[0]] = tuple(sorted(set(cpus[1:])))
    return Topology(online=online, policies=policies, designs=parse_designs(text))


def clusters_of(cores: Sequence[Core], topology: Topology = UNKNOWN) -> tuple[Cluster, ...]:
    """The cores by their kind, as `clusters_by_kind`.

    A core that is offline has the design and the clock of its policy. Policies of one core each do
    not separate cores: some chips give every core its own clock.
    """
    policies = _policies(topology)
    known = {core.number: core for core in cores}
    clocks: dict[int, float] = {}
    designs: dict[int, Design] = {}
    for number in known:
        mates = (number, *policies.get(number, ()))
        khz = (known[mate].max_khz for mate in mates if mate in known)
        clocks[number] = next((one / 1000 for one in khz if one is not None), 0.0)
        named = (topology.designs[mate] for mate in mates if mate in topology.designs)
        if (design := next(named, None)) is not None:
            designs[number] = design
    return clusters_by_kind(known, clocks, designs, policies)


def offline_cores(cores: Sequence[Core], topology: Topology = UNKNOWN) -> tuple[int, ...]:
    """The cores that are offline now, by the kernel's list.

    So is a core without a clock where others report one: it went offline between two reads, or the
    list is unknown.
    """
    is_clocked = any(core.max_khz is not None for core in cores)
    online = frozenset(topology.online or (core.number for core in cores))
    return tuple(
        core.number
        for core in cores
        if core.number not in online or (is_clocked and core.max_khz is None)
    )


def _policies(topology: Topology) -> Mapping[int, tuple[int, ...]]:
    """The policy of each core that shares one, also of cores that are offline."""
    found: dict[int, tuple[int, ...]] = {}
    for policy in topology.policies.values():
        if len(policy) > 1:
            for number in policy:
                found.setdefault(number, policy)
    return found


def _numbers(words: Sequence[str]) -> tuple[int, ...]:
    """The core numbers; empty if a word is none."""
    if not all(_NUMBER.fullmatch(word) for word in words):
        return ()
    return tuple(map(int, words))


# The clocks of a phone's cores while a program ran: whether, and when, they were lowered.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClocks:
    """The cores during a repeat.

    Attributes:
        looks: in order; empty if no look succeeded.
        times_s: of the looks, since the program was started.
        registered_cap_mhz: the highest cap under load at registration; `None` if unknown.
    """

    looks: tuple[tuple[Core, ...], ...] = ()
    times_s: tuple[float, ...] = ()
    registered_cap_mhz: float | None = None

    @property
    def highest_cap_mhz(self) -> float | None:
        """The highest cap of all cores during the repeat."""
        caps = (core.cap_khz for cores in self.looks for core in cores)
        return max((khz / 1000 for khz in caps if khz is not None), default=None)

    @property
    def registered_share(self) -> float | None:
        """The highest cap as a share of the registered one."""
        highest_mhz = self.highest_cap_mhz
        if highest_mhz is None or self.registered_cap_mhz is None:
            return None
        return highest_mhz / self.registered_cap_mhz

    @property
    def lowest_fall(self) -> float | None:
        """The lowest cap of a core as a share of the highest that it had before."""
        known = (share for share in self._falls() if share is not None)
        return min(known, default=None)

    def fell_after_s(self, share: float) -> float | None:
        """When a cap was first seen below this share of its highest; `None` if it was not."""
        falls = zip(self.times_s, self._falls(), strict=True)
        return next((at for at, fall in falls if fall is not None and fall < share), None)

    def _falls(self) -> Iterator[float | None]:
        """For each look the lowest cap as a share of the highest so far."""
        highest: dict[int, int] = {}
        for cores in self.looks:
            capped = {core.number: core.cap_khz for core in cores if core.cap_khz is not None}
            for number, cap in capped.items():
                highest[number] = max(cap, highest.get(number, 0))
            yield min((cap / highest[number] for number, cap in capped.items()), default=None)


UNSEEN = RunClocks()

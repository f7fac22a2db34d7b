"""Conditions of a measurement on a Linux host: pure parsers, and short readers that use them.

Unknown values are `None`. Readers take the root of the file system as an argument, so that tests
can pass a folder.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.contract.measurement import Conditions
from fleetrank.device_agents.device_output import LOAD, MEMORY_BYTES, degrees_c
from fleetrank.device_agents.linux.cores import cpus_one_per_core
from fleetrank.device_agents.linux.worker_process import number_of, text_of

ROOT = Path("/")
_MEMINFO = re.compile(r"^MemAvailable:[ \t]*(\d{1,18}) kB$", re.MULTILINE | re.ASCII)
_CPUINFO_MHZ = re.compile(
    r"^cpu MHz[ \t]*:[ \t]*(\d{1,18}(?:\.\d{0,18})?)[ \t]*$", re.MULTILINE | re.ASCII
)
_STAT = re.compile(r"^cpu[ \t]+((?:\d{1,20}(?: +|$))+)$", re.MULTILINE | re.ASCII)
_VMSTAT_OOM = re.compile(r"^oom_kill (\d{1,18})$", re.MULTILINE | re.ASCII)
_LOAD = re.compile(r"(\d{1,18}\.\d{1,18})(?= |$)", re.ASCII)
_CPU_SENSOR = re.compile(r"cpu|core|soc|cluster|pkg|package|k10temp|zenpower", re.IGNORECASE)
"""In names of kernel drivers and thermal zones that mean the CPU or the chip that it is in.

Source: such as `x86_pkg_temp`, `coretemp`, `cpu_thermal`, `CPU-therm`, `soc-thermal`,
`bigcore0-thermal` of Linux and of the makers of boards.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """Time of all cores since boot, in ticks: used by processes, taken by the hypervisor, total."""

    busy: int
    steal: int
    total: int


def parse_stat(text: str) -> CpuTime | None:
    """Reads the first line of `/proc/stat`.

    Source: proc_stat(5): user nice system idle iowait irq softirq steal guest guest_nice; user
        time includes guest time.
    """
    match = _STAT.search(text)
    numbers = [int(number) for number in match.group(1).split()] if match else []
    if len(numbers) < 8:
        return None
    user, nice, system, idle, iowait, irq, softirq, steal = numbers[:8]
    busy = user + nice + system + irq + softirq
    return CpuTime(busy=busy, steal=steal, total=busy + idle + iowait + steal)


def parse_load(text: str) -> float | None:
    """One-minute average of `/proc/loadavg`.

    Raises:
        BadOutputError: more than any system can have.
    """
    match = _LOAD.match(text)
    if match is None:
        return None
    LOAD.require(float(match[1]), match[0])
    return float(match[1])


def parse_available_memory(text: str) -> int | None:
    """`MemAvailable` of `/proc/meminfo`, in bytes.

    Raises:
        BadOutputError: more than any system can have.
    """
    match = _MEMINFO.search(text)
    if match is None:
        return None
    MEMORY_BYTES.require(int(match[1]) * 1024, match[0])
    return int(match[1]) * 1024


def parse_cpuinfo_mhz(text: str) -> tuple[float, ...]:
    """Current clock per logical core in `/proc/cpuinfo`; empty if the system does not list it."""
    return tuple(float(mhz) for mhz in _CPUINFO_MHZ.findall(text))


def parse_oom_kills(text: str) -> int | None:
    """Processes killed for lack of memory since boot, from `/proc/vmstat` (since Linux 4.13)."""
    match = _VMSTAT_OOM.search(text)
    return int(match.group(1)) if match else None


Shares = tuple[float, float] | None
"""Core time used by other processes and taken by the hypervisor; see `shares`."""


def shares(before: CpuTime | None, after: CpuTime | None, own_ticks: float) -> Shares:
    """Shares of all cores' time used by other processes and by the hypervisor, each 0 to 1.

    `None` if a reading is missing or no tick passed.
    """
    if before is None or after is None or after.total <= before.total:
        return None
    total = after.total - before.total
    others = (after.busy - before.busy - own_ticks) / total
    steal = (after.steal - before.steal) / total
    return min(max(others, 0.0), 1.0), min(max(steal, 0.0), 1.0)


def read_cpu_time(root: Path = ROOT) -> CpuTime | None:
    """Time of all cores now."""
    return parse_stat(text_of(root / "proc/stat"))


def read_oom_kills(root: Path = ROOT) -> int | None:
    """Processes killed for lack of memory since boot."""
    return parse_oom_kills(text_of(root / "proc/vmstat"))


def read_conditions(cpus: Sequence[int] | None, used: Shares, root: Path = ROOT) -> Conditions:
    """Reads all conditions of the host now.

    Args:
        cpus: the cores whose clock is read; `None` means all.
        used: the result of `shares` for the window before this moment.
        root: of the file system.
    """
    return Conditions(
        load_1min=parse_load(text_of(root / "proc/loadavg")),
        busy_share=used[0] if used else None,
        steal_share=used[1] if used else None,
        clock_mhz=_mean(_clocks_mhz(cpus, root)),
        clock_max_mhz=read_clock_max_mhz(root),
        governor=read_governor(root),
        temp_c=_hottest_c(root),
        available_memory_bytes=parse_available_memory(text_of(root / "proc/meminfo")),
    )


def read_governor(root: Path = ROOT) -> str | None:
    """Frequency governors in use, joined by commas if the cores differ; `None` if unknown."""
    names = {text_of(folder / "scaling_governor").strip() for folder in _cpufreq(None, root)}
    return ",".join(sorted(names - {""})) or None


def read_clock_max_mhz(root: Path = ROOT) -> float | None:
    """Highest clock that any core supports of those that this process may use."""
    folders = _cpufreq(cpus_one_per_core(root), root)
    found = (number_of(folder / "cpuinfo_max_freq") for folder in folders)
    return max((khz / 1000 for khz in found if khz is not None), default=None)


def _clocks_mhz(cpus: Sequence[int] | None, root: Path) -> list[float]:
    found = (number_of(folder / "scaling_cur_freq") for folder in _cpufreq(cpus, root))
    clocks = [khz / 1000 for khz in found if khz is not None]
    if clocks:
        return clocks
    listed = parse_cpuinfo_mhz(text_of(root / "proc/cpuinfo"))
    return [mhz for cpu, mhz in enumerate(listed) if cpus is None or cpu in cpus]


def _cpufreq(cpus: Sequence[int] | None, root: Path) -> list[Path]:
    folders = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq"))
    return [f for f in folders if cpus is None or int(f.parent.name[3:]) in cpus]


def _hottest_c(root: Path) -> float | None:
    readings = [
        number_of(file)
        for chip in (root / "sys/class/hwmon").glob("hwmon*")
        if _CPU_SENSOR.search(text_of(chip / "name"))
        for file in chip.glob("temp*_input")
    ] + [
        number_of(zone / "temp")
        for zone in (root / "sys/class/thermal").glob("thermal_zone*")
        if _CPU_SENSOR.search(text_of(zone / "type"))
    ]
    known = (degrees_c(reading) for reading in readings if reading is not None)
    return max((celsius for celsius in known if celsius is not None), default=None)


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else None

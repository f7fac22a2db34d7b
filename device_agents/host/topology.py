"""The CPU of this host: parsed from text, read from procfs and sysfs."""

import os
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.device_output import lines_of
from fleetrank.device_agents.host.conditions import ROOT, read_clock_max_mhz, read_governor
from fleetrank.foundation.vocabulary import Origin, Tier

_MODEL = re.compile(r"^(?:model name|Model|Hardware)[ \t]*+:(.*+)$", re.MULTILINE)
_FLAGS = re.compile(r"^flags[ \t]*+:(.*+)$", re.MULTILINE)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_NUMBER = re.compile(r"\d{1,4}", re.ASCII)
_MAX_CPU = 65_536
"""Above any kernel's limit; a larger number is not part of a list of CPUs."""

Design = tuple[str, str]
"""Implementer and part of a core, as in /proc/cpuinfo of ARM systems."""
SMALL_DESIGNS = frozenset({
    ("0x41", "0xc05"), ("0x41", "0xc07"), ("0x41", "0xc08"), ("0x41", "0xd01"), ("0x41", "0xd03"),
    ("0x41", "0xd04"), ("0x41", "0xd05"), ("0x41", "0xd46"), ("0x41", "0xd80"), ("0x41", "0xd8f"),
    ("0x51", "0x801"), ("0x51", "0x803"), ("0x51", "0x805"),
})  # fmt: skip
"""Cortex-A5, A7, A8, A32, A53, A35, A55, A510, A520, A320 and Kryo 2xx, 3xx, 4xx Silver. Every
other core of one chip is faster than these, also at a lower clock.

Source: src/arm/uarch.c of pytorch/cpuinfo."""


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Parses a set of CPUs in the kernel's form `0-3,8`; invalid parts are skipped."""
    cpus: set[int] = set()
    for part in ",".join(lines_of(text.strip())[:1]).split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            continue
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        if last < _MAX_CPU:
            cpus.update(range(first, last + 1))
    return tuple(sorted(cpus))


def parse_cpu_model(cpuinfo: str) -> str | None:
    """The CPU's name in `/proc/cpuinfo`; many ARM systems do not have it."""
    names = (match[1].strip() for match in _MODEL.finditer(cpuinfo))
    return next((name for name in names if name), None)


def parse_designs(cpuinfo: str) -> dict[int, Design]:
    """The design of each CPU, by its number; empty unless the system lists one for each.

    Old kernels print one design after all cores: that of the core that read the file.
    """
    designs: dict[int, Design] = {}
    number, implementer, n_listed = -1, "", 0
    for line in lines_of(cpuinfo):
        if ":" not in line:
            continue
        name, _, value = (part.strip() for part in line.partition(":"))
        if name == "processor":
            number, implementer = int(value) if _NUMBER.fullmatch(value) else -1, ""
            n_listed += 1
        elif name == "CPU implementer":
            implementer = value.lower()
        elif name == "CPU part" and number >= 0:
            designs[number] = (implementer, value.lower())
    return designs if len(designs) == n_listed else {}


def parse_is_virtual(cpuinfo: str) -> bool | None:
    """Whether the CPU reports a hypervisor; `None` on CPUs that never report it (not x86)."""
    match = _FLAGS.search(cpuinfo)
    return "hypervisor" in match.group(1).split() if match else None


def order_by_core(
    siblings: Mapping[int, tuple[int, ...]], usable: Iterable[int]
) -> tuple[int, ...]:
    """The usable CPUs: the first of each physical core, ascending, then their SMT siblings.

    Args:
        siblings: logical CPU to all logical CPUs of its core; a missing one counts as one core.
        usable: logical CPUs this process may use.
    """
    first: list[int] = []
    rest: list[int] = []
    taken: set[int] = set()
    for cpu in sorted(usable):
        (rest if cpu in taken else first).append(cpu)
        taken.update(siblings.get(cpu, (cpu,)))
    return (*first, *rest)


def cpus_one_per_core(root: Path = ROOT) -> tuple[int, ...]:
    """The CPUs this process may use, ordered so that the first n are on n different cores.

    If fewer cores exist, cores repeat. Ascending if the system does not report shared cores.
    """
    return order_by_core(read_siblings(root), os.sched_getaffinity(0))


def read_siblings(root: Path = ROOT) -> dict[int, tuple[int, ...]]:
    """Logical CPU to the logical CPUs of its core; empty if the system does not report it."""
    folders = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/topology")
    return {
        int(folder.parent.name[3:]): parse_cpu_list(_read(folder / "thread_siblings_list"))
        for folder in folders
    }


def read_facts(root: Path = ROOT) -> DeviceFacts:
    """Facts about this host's CPU."""
    cpuinfo = _read(root / "proc/cpuinfo")
    model = parse_cpu_model(cpuinfo)
    siblings = {cpus for cpus in read_siblings(root).values() if cpus}
    return DeviceFacts(
        device_model=model or f"{platform.machine()} CPU",
        tier=Tier.CPU,
        origin=Origin.MEASURED,
        os=f"{platform.system()} {platform.release()}",
        arch=platform.machine(),
        cpu_model=model,
        logical_cores=os.cpu_count(),
        physical_cores=len(siblings) or None,
        memory_bytes=memory_bytes(),
        clock_max_mhz=read_clock_max_mhz(root),
        governor=read_governor(root),
        is_virtual_machine=parse_is_virtual(cpuinfo),
    )


def memory_bytes() -> int | None:
    """Memory of this host; `None` if the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

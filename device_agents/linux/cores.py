"""The cores of a machine by their kind, of hosts, boards and phones alike.

Chips have cores of several kinds. A measurement on slow cores, or on cores of two kinds, answers
another question than one on the fast ones, so everything that pins starts with the fastest kind.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from fleetrank.device_agents.contract.agent import Cluster
from fleetrank.device_agents.device_output import lines_of
from fleetrank.device_agents.linux.worker_process import number_of, text_of
from fleetrank.foundation.cpus import Kinds, parse_cpu_list

_NUMBER = re.compile(r"\d{1,4}", re.ASCII)

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
_LISTED_MAKERS = frozenset(implementer for implementer, _ in SMALL_DESIGNS)
_SMALL_CLOCK = 0.82
"""Below this share of the fastest clock a core of a maker without listed designs is a small one.

Efficiency cores have 0.62 (Apple M1), 0.74 (Core i9-13900KF), 0.79 (Core Ultra 7 155H) and 0.81
(Core Ultra 9 285K) of the clock of the others; favoured cores of one kind differ by at most 0.08.
"""


_FAVOURED_CLOCK = 0.9
"""Cores of one kind may have a clock from this share of the fastest one on."""

_Kind = tuple[bool, float, tuple[int, ...], Design | None]
"""Small design, highest clock (negative, 0 if unknown), policy and design: equal in a cluster."""


def clusters_by_kind(
    cores: Iterable[int],
    clocks_mhz: Mapping[int, float],
    designs: Mapping[int, Design],
    policies: Mapping[int, tuple[int, ...]] | None = None,
) -> tuple[Cluster, ...]:
    """Groups cores of equal design, highest clock and frequency policy, the fastest group first.

    Small designs come last, then the highest clock decides, then the higher core number, because
    kernels of ARM systems count small cores first.

    Args:
        cores: CPU numbers.
        clocks_mhz: highest clock by CPU; a missing one is unknown.
        designs: by CPU.
        policies: the cores that share a clock with a core, where that separates kinds.
    """
    groups: dict[_Kind, list[int]] = {}
    for cpu in sorted(cores):
        design = designs.get(cpu)
        policy = (policies or {}).get(cpu, ())
        kind = (design in SMALL_DESIGNS, -clocks_mhz.get(cpu, 0.0), policy, design)
        groups.setdefault(kind, []).append(cpu)
    ordered = sorted(groups.items(), key=lambda group: (*group[0][:2], -group[1][0]))
    return tuple(
        Cluster(
            cores=tuple(cpus), max_mhz=-kind[1] or None, is_small=_is_smaller(kind, ordered[0][0])
        )
        for kind, cpus in ordered
    )


def _is_smaller(kind: _Kind, first: _Kind) -> bool:
    design = kind[3]
    if design is not None and design[0] in _LISTED_MAKERS:
        return kind[0] and not first[0]
    return kind[1] < 0 and -kind[1] < _SMALL_CLOCK * -first[1]


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


def order_by_core(
    siblings: Mapping[int, tuple[int, ...]], usable: Iterable[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The usable CPUs: the first of each physical core, and their SMT siblings; both ascending.

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
    return tuple(first), tuple(rest)


def cpus_one_per_core(root: Path = Path("/")) -> tuple[int, ...]:
    """The CPUs this process may use, ordered so that the first n are on n different cores.

    Cores of the fastest kind come first, those of one socket together. If fewer cores exist, cores
    repeat. Ascending if the system reports neither kinds, sockets nor shared cores.
    """
    kinds = enumerate(kinds_of_cores(root))
    place = {cpu: n for n, cpus in kinds for cpu in cpus}
    first, rest = order_by_core(read_siblings(root), place)
    return (*sorted(first, key=place.__getitem__), *sorted(rest, key=place.__getitem__))


def kinds_of_cores(root: Path = Path("/")) -> Kinds:
    """The CPUs this process may use, by kind and socket, in the order in which they are used."""
    sockets: dict[tuple[int, float], list[int]] = {}
    for n, cluster in enumerate(_read_clusters(os.sched_getaffinity(0), root)):
        for cpu in cluster.cores:
            file = root / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"
            sockets.setdefault((n, number_of(file) or 0), []).append(cpu)
    return tuple(tuple(sockets[place]) for place in sorted(sockets))


def _read_clusters(cpus: Iterable[int], root: Path) -> tuple[Cluster, ...]:
    """Cores that differ only in a favoured clock are one cluster, across all sockets."""
    folder, found = root / "sys/devices/system/cpu", sorted(cpus)
    khz = {cpu: number_of(folder / f"cpu{cpu}/cpufreq/cpuinfo_max_freq") for cpu in found}
    clocks = {cpu: value / 1000 for cpu, value in khz.items() if value is not None}
    clusters = clusters_by_kind(found, clocks, parse_designs(text_of(root / "proc/cpuinfo")))
    least = min(clocks.get(cpu, 0.0) for cpu in found)
    if any(one.is_small for one in clusters) or least < _FAVOURED_CLOCK * max(
        clocks.values(), default=0.0
    ):
        return clusters
    return (Cluster(cores=tuple(found), max_mhz=None, is_small=False),)


def read_siblings(root: Path = Path("/")) -> dict[int, tuple[int, ...]]:
    """Logical CPU to the logical CPUs of its core; empty if the system does not report it."""
    folders = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/topology")
    return {
        int(folder.parent.name[3:]): parse_cpu_list(text_of(folder / "thread_siblings_list"))
        for folder in folders
    }

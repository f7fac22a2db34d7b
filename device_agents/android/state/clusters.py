"""Clusters of a phone: which cores are of one kind, which kind is fastest, which are offline.

Two kinds can have one highest clock (Helio P60: 4 Cortex-A53 and 4 Cortex-A73 at 1989 MHz), and
the fast cores of a phone at rest can be offline, without any clock (Nexus 5X). So the design of a
core and its frequency policy decide, not its clock alone.

Source: Documentation/admin-guide/pm/cpufreq.rst (`related_cpus`: all cores of a policy, also those
    offline), Documentation/ABI/testing/sysfs-devices-system-cpu (`online`) of the Linux kernel.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleetrank.device_agents.android.state.cores import Core
from fleetrank.device_agents.device_output import lines_of
from fleetrank.device_agents.host.topology import parse_cpu_list

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
_IN_ORDER = frozenset({
    ("0x41", "0xc05"), ("0x41", "0xc07"), ("0x41", "0xc08"), ("0x41", "0xd01"), ("0x41", "0xd03"),
    ("0x41", "0xd04"), ("0x41", "0xd05"), ("0x41", "0xd46"), ("0x41", "0xd80"), ("0x41", "0xd8f"),
    ("0x51", "0x801"), ("0x51", "0x803"), ("0x51", "0x805"),
})  # fmt: skip
"""Implementer and part of small cores: Cortex-A5, A7, A8, A32, A53, A35, A55, A510, A520, A320 and
Kryo 2xx, 3xx, 4xx Silver. Every other core of a phone is faster than these at the same clock.

Source: src/arm/uarch.c of pytorch/cpuinfo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Cores of one kind; `max_mhz` is `None` if all of them are offline or report no clock."""

    cores: tuple[int, ...]
    max_mhz: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What the kernel says about the cores of a phone beside their clocks.

    Attributes:
        online: numbers of the cores online; empty if unknown.
        policies: the cores that share a clock with a core, by its number, itself included.
        designs: implementer and part of a core, by its number, as in /proc/cpuinfo.
    """

    online: tuple[int, ...] = ()
    policies: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    designs: Mapping[int, tuple[str, str]] = field(default_factory=dict)


UNKNOWN = Topology()
_Kind = tuple[bool, int, tuple[int, ...], tuple[str, str] | None]
"""Small, highest clock in kHz (negative, 0 if unknown), policy and design: equal in a cluster."""


def parse_topology(text: str) -> Topology:
    """Reads the output of `TOPOLOGY_SCRIPT`; other lines are skipped."""
    online: tuple[int, ...] = ()
    policies: dict[int, tuple[int, ...]] = {}
    designs: dict[int, tuple[str, str]] = {}
    number, implementer, n_listed = -1, "", 0
    for line in lines_of(text):
        if not (words := line.split()):
            continue
        name, colon, value = (part.strip() for part in line.partition(":"))
        if words[:1] == ["online"]:
            online = parse_cpu_list("".join(words[1:]))
        elif words[:1] == ["related"] and len(cpus := _numbers(words[1:])) > 1:
            policies[cpus[0]] = tuple(sorted(set(cpus[1:])))
        elif colon and name == "processor":
            number, implementer = next(iter(_numbers([value])), -1), ""
            n_listed += 1
        elif colon and name == "CPU implementer":
            implementer = value.lower()
        elif colon and name == "CPU part" and number >= 0:
            designs[number] = (implementer, value.lower())
    # Old kernels print one design after all cores: that of the core that read the file.
    is_per_core = len(designs) == n_listed
    return Topology(online=online, policies=policies, designs=designs if is_per_core else {})


def clusters_of(cores: Sequence[Core], topology: Topology = UNKNOWN) -> tuple[Cluster, ...]:
    """Groups cores of equal design, highest clock and frequency policy, the fastest group first.

    A core that is offline has the design and the clock of its policy. Policies of one core each do
    not separate cores: some chips give every core its own clock. Small designs come last, then
    the highest clock decides, then the higher core number, because kernels count small cores first.
    """
    policies = _policies(topology)
    known = {core.number: core for core in cores}
    groups: dict[_Kind, list[int]] = {}
    for number in sorted(known):
        policy = policies.get(number, ())
        mates = (number, *policy)
        clocks = (known[mate].max_khz for mate in mates if mate in known)
        khz = next((clock for clock in clocks if clock is not None), None)
        design = next((topology.designs[mate] for mate in mates if mate in topology.designs), None)
        is_small = design in _IN_ORDER
        groups.setdefault((is_small, -(khz or 0), policy, design), []).append(number)
    ordered = sorted(groups.items(), key=lambda group: (*group[0][:2], -group[1][0]))
    return tuple(
        Cluster(cores=tuple(numbers), max_mhz=-khz / 1000 if khz else None)
        for (_, khz, *_), numbers in ordered
    )


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

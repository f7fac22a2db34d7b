"""Clusters of a phone: which cores are of one kind, which kind is fastest, which are offline.

Two kinds can have one highest clock (Helio P60: 4 Cortex-A53 and 4 Cortex-A73 at 1989 MHz), and the
fast cores of a phone at rest can be offline, without any clock (Nexus 5X). So the design of a core
and its frequency policy decide, not its clock alone.

Source: Documentation/admin-guide/pm/cpufreq.rst (`related_cpus`: all cores of a policy, also those
offline), Documentation/ABI/testing/sysfs-devices-system-cpu (`online`) of the Linux kernel.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleetrank.device_agents.android.state.phone_cores import Core
from fleetrank.device_agents.contract.agent import Cluster
from fleetrank.device_agents.device_output import lines_of
from fleetrank.device_agents.linux.cores import Design, clusters_by_kind, parse_designs
from fleetrank.foundation.cpus import parse_cpu_list

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

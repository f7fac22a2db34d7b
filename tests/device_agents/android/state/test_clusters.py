"""Clusters of phones; the first two are recorded: test/mock/*.h of pytorch/cpuinfo, 42bff7a."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.device_agents.android.state.clusters import (
    Topology,
    clusters_of,
    offline_cores,
    parse_topology,
)
from fleetrank.device_agents.android.state.phone_cores import parse_cores
from fleetrank.device_agents.contract.agent import Cluster


def cpuinfo(*parts: str, implementer: str = "0x41") -> str:
    return "".join(
        f"processor\t: {number}\nCPU implementer\t: {implementer}\nCPU part\t: {part}\n"
        for number, part in enumerate(parts)
    )


OPPO_R15 = "".join(f"{n} 1989000 {'-' if n < 4 else 793000} 793000 -\n" for n in range(8))
OPPO_R15_TOPOLOGY = (
    "online 0-7\n"
    + "".join(f"related {n} 0 1 2 3\n" for n in range(4))
    + "".join(f"related {n} 4 5 6 7\n" for n in range(4, 8))
    + cpuinfo(*["0xd03"] * 4, *["0xd09"] * 4)
)
NEXUS_5X = "0 1440000 - 1440000 interactive\n" + "".join(
    f"{n} 1440000 - 384000 interactive\n" for n in (1, 2, 3)
)
NEXUS_5X += "4 - - - -\n5 - - - -\n"
NEXUS_5X_TOPOLOGY = (
    "online 0-3\n"
    + "".join(f"related {n} 0 1 2 3\n" for n in range(4))
    + cpuinfo(*["0xd03"] * 4, *["0xd07"] * 2)
)
GALAXY_S7 = "".join(f"{n} 1586000 - 1586000 -\n" for n in range(4))
GALAXY_S7 += "4 2600000 2600000 728000 -\n5 2600000 2600000 728000 -\n6 - - - -\n7 - - - -\n"
GALAXY_S7_TOPOLOGY = (
    "online 0-5\n"
    + "".join(f"related {n} 0 1 2 3\n" for n in range(4))
    + "related 4 4 5 6 7\nrelated 5 4 5 6 7\n"
    + cpuinfo(*["0xd03"] * 4)
)


def test_cores_without_design_and_policy_are_grouped_by_their_highest_clock() -> None:
    text = "0 1803000 - - -\n1 1803000 - - -\n2 2802000 - - -\n3 - - - -\n"
    assert clusters_of(parse_cores(text)) == (
        Cluster(cores=(2,), max_mhz=2802.0, is_small=False),
        Cluster(cores=(0, 1), max_mhz=1803.0, is_small=True),
        Cluster(cores=(3,), max_mhz=None, is_small=False),
    )


def test_cores_of_one_clock_and_two_designs_are_two_clusters() -> None:
    found = clusters_of(parse_cores(OPPO_R15), parse_topology(OPPO_R15_TOPOLOGY))
    assert found == (
        Cluster(cores=(4, 5, 6, 7), max_mhz=1989.0, is_small=False),
        Cluster(cores=(0, 1, 2, 3), max_mhz=1989.0, is_small=True),
    )


def test_cores_of_one_clock_in_two_policies_are_two_clusters() -> None:
    policies = "".join(line + "\n" for line in OPPO_R15_TOPOLOGY.splitlines() if "related" in line)
    found = clusters_of(parse_cores(OPPO_R15), parse_topology(policies))
    assert {cluster.cores for cluster in found} == {(0, 1, 2, 3), (4, 5, 6, 7)}


def test_big_cores_that_are_offline_are_known_by_their_design() -> None:
    cores, topology = parse_cores(NEXUS_5X), parse_topology(NEXUS_5X_TOPOLOGY)
    assert clusters_of(cores, topology) == (
        Cluster(cores=(4, 5), max_mhz=None, is_small=False),
        Cluster(cores=(0, 1, 2, 3), max_mhz=1440.0, is_small=True),
    )
    assert offline_cores(cores, topology) == (4, 5)


def test_an_offline_core_belongs_to_the_policy_that_names_it() -> None:
    cores, topology = parse_cores(GALAXY_S7), parse_topology(GALAXY_S7_TOPOLOGY)
    assert clusters_of(cores, topology) == (
        Cluster(cores=(4, 5, 6, 7), max_mhz=2600.0, is_small=False),
        Cluster(cores=(0, 1, 2, 3), max_mhz=1586.0, is_small=True),
    )
    assert offline_cores(cores, topology) == (6, 7)


def test_equal_cores_with_a_policy_each_are_one_cluster() -> None:
    cores = parse_cores("".join(f"{n} 2265600 - 300000 -\n" for n in range(4)))
    topology = parse_topology("".join(f"related {n} {n}\n" for n in range(4)))
    assert clusters_of(cores, topology) == (
        Cluster(cores=(0, 1, 2, 3), max_mhz=2265.6, is_small=False),
    )


def test_one_design_after_all_cores_is_that_of_none() -> None:
    # Galaxy S6, Linux 3.10: the design of the core that read the file, after the last core.
    text = "".join(f"{n} {1500000 if n < 4 else 2100000} - - -\n" for n in range(8))
    listed = "".join(f"processor\t: {n}\n" for n in range(8))
    topology = parse_topology(listed + "CPU implementer\t: 0x41\nCPU part\t: 0xd03\n")
    assert topology == Topology()
    assert [one.cores for one in clusters_of(parse_cores(text), topology)] == [
        (4, 5, 6, 7),
        (0, 1, 2, 3),
    ]


def test_a_core_that_went_offline_between_two_reads_is_offline() -> None:
    topology = parse_topology("online 0-2\n")
    assert offline_cores(parse_cores("0 1000 - - -\n1 1000 - - -\n2 - - - -\n"), topology) == (2,)


def test_without_the_list_of_cores_online_the_clocks_tell_it() -> None:
    assert offline_cores(parse_cores(NEXUS_5X), Topology()) == (4, 5)
    assert offline_cores(parse_cores("0 - - - -\n1 - - - -\n"), Topology()) == ()


@pytest.mark.parametrize(
    "text", ["online 9-0", "online 0-99999999999", "online x", "related 1", "related x 1", "online"]
)
def test_a_listing_that_no_kernel_prints_is_unknown(text: str) -> None:
    assert parse_topology(text) == Topology()


@given(
    cores=st.lists(
        st.tuples(st.sampled_from(["-", "1000", "2000"]), st.sampled_from(["0xd03", "0xd09"])),
        max_size=10,
    ),
    policy=st.sets(st.integers(0, 9), min_size=1),
)
def test_each_core_is_in_one_cluster(cores: list[tuple[str, str]], policy: set[int]) -> None:
    listed = parse_cores("".join(f"{n} {khz} - - -\n" for n, (khz, _) in enumerate(cores)))
    related = f"related {min(policy)} {' '.join(map(str, sorted(policy)))}\n"
    topology = parse_topology(related + cpuinfo(*[part for _, part in cores]))
    numbers = [number for one in clusters_of(listed, topology) for number in one.cores]
    assert sorted(numbers) == list(range(len(cores)))

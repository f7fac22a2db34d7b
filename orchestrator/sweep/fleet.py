"""The hosts that a sweep is planned for, as values that its record can store."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.hosts.facts import HostFacts, read_host_facts
from fleetrank.device_agents.hosts.messages import DeviceSpec
from fleetrank.device_agents.hosts.reach import LOCAL_HOST
from fleetrank.device_agents.linux.cores import cpus_one_per_core, kinds_of_cores
from fleetrank.foundation.codec import CodecError, from_plain, to_plain
from fleetrank.orchestrator.dispatch.ray_hosts import Joined
from fleetrank.orchestrator.errors import StoreError

Refusals = Callable[[str, DeviceSpec, Execution], str | None]
"""(host, device, execution) to the reason why a host's CPU does not support it, or `None`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Every host that was available when a sweep was planned.

    Attributes:
        here: the host that sweeps are started on; devices without a `host` are attached to it.
            `None` if it is not a device host of the cluster.
        hosts: by name; hosts that were unavailable are missing.
        is_cluster: false for the local Ray that is started for one sweep.
    """

    here: str | None
    hosts: Mapping[str, HostFacts] = field(default_factory=dict)
    is_cluster: bool = False

    def as_record(self) -> dict[str, object]:
        """As JSON values, for the record of a sweep."""
        return {
            "here": self.here,
            "is_cluster": self.is_cluster,
            # No serial numbers: records are shared, and names are private.
            "hosts": {
                name: to_plain(replace(facts, seen=())) for name, facts in self.hosts.items()
            },
        }


def this_host() -> Fleet:
    """The fleet of this host alone: sweeps run in a local Ray or without Ray."""
    return Fleet(here=LOCAL_HOST, hosts={LOCAL_HOST: read_host_facts()})


def fleet_of(joined: Joined) -> Fleet:
    """The hosts of a cluster that answer now; others may join later."""
    return Fleet(here=joined.here, hosts=joined.hosts, is_cluster=True)


def fleet_of_record(record: object) -> Fleet:
    """The inverse of `Fleet.as_record`.

    Raises:
        StoreError: the record is not a fleet.
    """
    try:
        found = dict(record)  # type: ignore[call-overload]
        hosts = {name: from_plain(HostFacts, it) for name, it in dict(found["hosts"]).items()}
        here = found["here"]
        return Fleet(
            here=None if here is None else str(here),
            hosts=hosts,
            is_cluster=bool(found["is_cluster"]),
        )
    except (KeyError, TypeError, ValueError, CodecError) as error:
        raise StoreError(
            f"the sweep's record does not contain the hosts it was planned for: {error}",
            "start a new sweep; measured results are kept",
        ) from error


def with_cores_of_today(fleet: Fleet) -> Fleet:
    """The fleet with the cores that this host allows now; a CPU mask may have changed.

    A cluster keeps the recorded cores, since its hosts have not been asked yet.
    """
    if fleet.is_cluster or fleet.here is None or fleet.here not in fleet.hosts:
        return fleet
    facts = replace(
        fleet.hosts[fleet.here], one_per_core=cpus_one_per_core(), kinds=kinds_of_cores()
    )
    return replace(fleet, hosts={**fleet.hosts, fleet.here: facts})

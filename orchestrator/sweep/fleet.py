"""The hosts a sweep is planned for: what they are, as values that its record can keep."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from fleetrank.device_agents.contract.codec import from_plain, to_plain
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import PermanentError
from fleetrank.orchestrator.dispatch.host.host_facts import HostFacts, read_host_facts
from fleetrank.orchestrator.dispatch.ray.local_ray import LOCAL_HOST
from fleetrank.orchestrator.dispatch.ray.ray_hosts import RayHosts
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.workspace.device_spec import DeviceSpec

Refusals = Callable[[str, DeviceSpec, Execution], str | None]
"""(host, device, execution) to why a host's CPU cannot execute so, or `None`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Every host that was there when a sweep was planned.

    Attributes:
        here: the host sweeps are started on, which devices without a host hang on; `None` when
            it is none of the cluster's device hosts.
        hosts: by name; those of devices that were not there are missing.
        is_cluster: more than the Ray that is started for one sweep.
    """

    here: str | None
    hosts: Mapping[str, HostFacts] = field(default_factory=dict)
    is_cluster: bool = False

    def host_hash(self, host: str) -> str | None:
        """How rows name a host; `None` while it has never answered."""
        return self.hosts[host].host_hash if host in self.hosts else None

    def as_record(self) -> dict[str, object]:
        """As JSON values, for the record of a sweep."""
        return {
            "here": self.here,
            "is_cluster": self.is_cluster,
            # Serials stay where they are: records are shared, names are private.
            "hosts": {
                name: to_plain(replace(facts, phones=None, gpus=None))
                for name, facts in self.hosts.items()
            },
        }


def this_host() -> Fleet:
    """The fleet of one: sweeps run here, in a Ray of their own or without any."""
    return Fleet(here=LOCAL_HOST, hosts={LOCAL_HOST: read_host_facts()})


def fleet_of(hosts: RayHosts) -> Fleet:
    """The hosts of a cluster that answer now; others may come later."""
    facts = {name: handle.facts for name, handle in hosts.handles().items()}
    return Fleet(here=hosts.here, hosts=facts, is_cluster=True)


def fleet_of_record(record: object) -> Fleet:
    """The inverse of `Fleet.as_record`.

    Raises:
        StoreError: it is none.
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
    except (KeyError, TypeError, ValueError, PermanentError) as error:
        raise StoreError(
            f"the sweep's record does not say which hosts it was planned for: {error}",
            "start a new sweep; what was measured is kept",
        ) from error

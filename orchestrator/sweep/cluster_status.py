"""What `fleetrank cluster status` shows: hosts, devices, versions and problems."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from fleetrank.device_agents.registry import load_kinds
from fleetrank.orchestrator.dispatch.host.host_facts import HostFacts
from fleetrank.orchestrator.dispatch.ray.ray_hosts import Problem
from fleetrank.orchestrator.dispatch.ray.ray_process import RayProcess
from fleetrank.orchestrator.sweep.fleet import Fleet, fleet_of
from fleetrank.orchestrator.sweep.sweep_setup import devices_of, host_of
from fleetrank.orchestrator.workspace.device_registry import DeviceFile
from fleetrank.orchestrator.workspace.workspace import Workspace

_COMPARED = ("ray", "onnxruntime", "torch", "ai-edge-litert")
"""Packages that affect a measurement; fleetrank's own version must be identical everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatus:
    """One host that answers.

    Attributes:
        seen: how many devices it sees, by the noun of their kind; `None` if it cannot be known.
        running: tasks in progress, of all sweeps.
        to_collect: finished measurements that no driver has collected yet.
    """

    host: str
    hash: str
    python: str
    fleetrank: str
    onnxruntime: str | None
    torch: str | None
    litert: str | None
    seen: Mapping[str, int | None]
    running: int
    to_collect: int

    def as_row(self) -> dict[str, object]:
        """One row of a listing, with a column for each kind of device that a host can see."""
        row: dict[str, object] = {}
        for name, value in asdict(self).items():
            row |= value if name == "seen" else {name: value}
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStatus:
    """One device; `is_there` is true when its host answers, even if the device does not."""

    device: str
    kind: str
    host: str
    is_there: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The cluster at one moment; `dashboard` is the browser address of Ray's dashboard."""

    dashboard: str | None
    here: str | None
    hosts: tuple[HostStatus, ...]
    devices: tuple[DeviceStatus, ...]
    problems: tuple[str, ...]

    def as_plain(self) -> dict[str, object]:
        """As JSON values."""
        return asdict(self) | {"hosts": [host.as_row() for host in self.hosts]}


def read_cluster_status(workspace: Workspace, address: str) -> ClusterStatus:
    """Queries a cluster; raises as `RayProcess.connect`, and for a wrong device file."""
    with RayProcess() as process:
        joined = process.connect(address)
    fleet = fleet_of(joined)
    devices = {d.name: d for d in devices_of(workspace, fleet).values()}.values()
    return ClusterStatus(
        dashboard=f"http://{joined.dashboard}" if joined.dashboard else None,
        here=joined.here,
        hosts=tuple(_host(name, found) for name, found in sorted(fleet.hosts.items())),
        devices=tuple(_device(device, fleet) for device in devices),
        problems=tuple(find_problems(fleet, devices, joined.problems)),
    )


def find_problems(
    fleet: Fleet, devices: Iterable[DeviceFile], refused: Sequence[Problem]
) -> list[str]:
    """Problems as sentences, each with a remedy; empty if there are no problems."""
    found = [f"{problem.host} is not used: {problem.message}" for problem in refused]
    found += skew(fleet.hosts)
    for name, facts in fleet.hosts.items():
        if facts.niceness > 0:
            found.append(
                f"{name} runs its workers at niceness {facts.niceness}, which slows every "
                "measurement: start its raylet with RAY_worker_niceness=0"
            )
    hashes = Counter(facts.host_hash for facts in fleet.hosts.values())
    for name, facts in fleet.hosts.items():
        if hashes[facts.host_hash] > 1:
            found.append(
                f"{name} has the same host name and machine id as another host: the results "
                "cannot distinguish their CPUs; give it a different host name"
            )
    for device in devices:
        host = host_of(device, fleet)
        if host not in fleet.hosts:
            found.append(f"{device.name} is attached to host {host}, which is not available")
        elif device.kind_of.is_host_cpu and not device.host and len(fleet.hosts) > 1:
            found.append(f"{device.name} has no host: add `host: {host}` to its file")
        elif absence := _why_absent(fleet.hosts[host], device):
            found.append(f"{device.name} is attached to host {host}, {absence}")
    return found


def skew(hosts: Mapping[str, HostFacts]) -> list[str]:
    """Differences between hosts in the versions of packages that affect measurements."""
    found = []
    for package in _COMPARED:
        by_version: dict[str, list[str]] = {}
        for name, facts in sorted(hosts.items()):
            by_version.setdefault(dict(facts.versions).get(package, "none"), []).append(name)
        if len(by_version) > 1:
            said = ", ".join(f"{v} on {' '.join(names)}" for v, names in by_version.items())
            found.append(
                f"{package} differs: {said}; rows record the version, and a platform that mixes "
                "versions is excluded from figures"
            )
    return found


def _why_absent(facts: HostFacts, device: DeviceFile) -> str | None:
    presence = device.kind_of.presence
    if presence is None:
        return None
    return presence.why_absent(device.options, dict(facts.seen).get(device.kind))


def _host(name: str, facts: HostFacts) -> HostStatus:
    versions = dict(facts.versions)
    seen = dict(facts.seen)
    return HostStatus(
        host=name,
        hash=facts.host_hash,
        python=facts.python_version,
        fleetrank=f"{versions.get('fleetrank', '?')} {facts.code_sha256[:8]}",
        onnxruntime=versions.get("onnxruntime"),
        torch=versions.get("torch"),
        litert=versions.get("ai-edge-litert"),
        seen={
            one.presence.noun: None if (found := seen.get(name)) is None else len(found)
            for name, one in load_kinds().items()
            if one.presence is not None
        },
        running=facts.n_running,
        to_collect=facts.n_kept,
    )


def _device(device: DeviceFile, fleet: Fleet) -> DeviceStatus:
    host = host_of(device, fleet)
    return DeviceStatus(
        device=device.name, kind=device.kind, host=host, is_there=host in fleet.hosts
    )

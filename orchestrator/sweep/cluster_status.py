"""What `fleetrank doctor --cluster` shows: hosts, devices, versions and problems."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleetrank.device_agents.hosts.facts import HostFacts
from fleetrank.device_agents.registry import KINDS
from fleetrank.orchestrator.dispatch.hosts import wrong_clock
from fleetrank.orchestrator.dispatch.ray_process import RayProcess
from fleetrank.orchestrator.sweep.fleet import Fleet, fleet_of
from fleetrank.orchestrator.sweep.sweep_setup import devices_of, host_of
from fleetrank.orchestrator.workspace.device_registry import DeviceFile
from fleetrank.orchestrator.workspace.workspace import Workspace

_COMPARED = ("ray", "onnxruntime", "torch", "ai-edge-litert")
"""Packages that affect a measurement; fleetrank's own version must be identical everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The cluster at one moment.

    Attributes:
        dashboard: the browser address of Ray's dashboard.
        here: the name of this host, if it is a device host.
        hosts: a row for each host that answers, with a column for each kind of device that a host
            can see: how many it sees, `None` if it cannot be known.
        devices: a row for each device; `is_there` is true when its host answers, even if the device
            does not.
        problems: sentences, each with a remedy.
    """

    dashboard: str | None
    here: str | None
    hosts: tuple[Mapping[str, object], ...]
    devices: tuple[Mapping[str, object], ...]
    problems: tuple[str, ...]


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
    fleet: Fleet, devices: Iterable[DeviceFile], refused: Mapping[str, str]
) -> list[str]:
    """Problems as sentences, each with a remedy; empty if there are no problems."""
    found = not_used(refused)
    found += skew(fleet.hosts)
    for name, facts in fleet.hosts.items():
        if facts.niceness > 0:
            found.append(
                f"{name} runs its workers at niceness {facts.niceness}, which slows every "
                "measurement: start its raylet with RAY_worker_niceness=0"
            )
        if facts.cpu_quota_cores is not None:
            found.append(
                f"{name} has a CPU quota of {facts.cpu_quota_cores:.3g} cores, which stops "
                "measurements: raise the limit of its container or pod"
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


def not_used(problems: Mapping[str, str]) -> list[str]:
    """A sentence for each listed host that cannot be used."""
    return [f"{host} is not used: {why}" for host, why in problems.items()]


def skew(hosts: Mapping[str, HostFacts]) -> list[str]:
    """Differences between hosts: clocks, and versions of packages that affect measurements."""
    clocks = (wrong_clock(name, facts.clock_ahead_s) for name, facts in sorted(hosts.items()))
    found = [said for said in clocks if said is not None]
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


def _host(name: str, facts: HostFacts) -> Mapping[str, object]:
    versions, seen = dict(facts.versions), dict(facts.seen)
    return {
        "host": name,
        "hash": facts.host_hash,
        "python": facts.python_version,
        "fleetrank": f"{versions.get('fleetrank', '?')} {facts.code_sha256[:8]}",
        "onnxruntime": versions.get("onnxruntime"),
        "torch": versions.get("torch"),
        "litert": versions.get("ai-edge-litert"),
        **{
            one.presence.noun: None if (found := seen.get(kind)) is None else len(found)
            for kind, one in KINDS.items()
            if one.presence is not None
        },
        # Tasks in progress, and finished measurements that no driver has collected yet.
        "running": facts.n_running,
        "to_collect": facts.n_kept,
    }


def _device(device: DeviceFile, fleet: Fleet) -> Mapping[str, object]:
    host = host_of(device, fleet)
    is_there = host in fleet.hosts
    return {"device": device.name, "kind": device.kind, "host": host, "is_there": is_there}

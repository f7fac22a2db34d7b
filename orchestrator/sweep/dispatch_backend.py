"""Chooses where a sweep's tasks run: in this process, in a local Ray, or on a cluster."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path

from fleetrank.device_agents.registry import KINDS
from fleetrank.orchestrator.dispatch import ray_process
from fleetrank.orchestrator.dispatch.host import Host, HostFacts
from fleetrank.orchestrator.dispatch.hosts import (
    LOCAL_HOST,
    HostHere,
    Hosts,
    PlacedDevice,
    Reach,
    wrong_clock,
)
from fleetrank.orchestrator.dispatch.ray_process import RayProcess
from fleetrank.orchestrator.dispatch.spool import remove_spent
from fleetrank.orchestrator.errors import (
    NothingToDoError,
    OrchestratorError,
    StoreError,
    UsageError,
    is_installed,
)
from fleetrank.orchestrator.progress import Notice, PhaseStarted, Subscriber
from fleetrank.orchestrator.sweep.sweep_setup import (
    Fleet,
    Refusals,
    Setup,
    devices_of,
    fleet_of,
    host_of,
    this_host,
)
from fleetrank.orchestrator.workspace.device_registry import DeviceFile
from fleetrank.orchestrator.workspace.workspace import Workspace

# What `fleetrank doctor --cluster` shows: hosts, devices, versions and problems.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchBackend:
    """Lists the hosts before a sweep is planned, and sends its tasks to them afterwards.

    Attributes:
        fleet: the hosts to plan for.
        ask_host: asks another host which executions its CPU does not support.
        open_hosts: opens the hosts of a planned sweep, by the sweep's id.
        starts_ray: a Ray of this host starts and ends with them.
    """

    fleet: Fleet
    ask_host: Refusals | None = None
    open_hosts: Callable[[str, Setup], AbstractContextManager[Hosts]]
    starts_ray: bool = False


_LEAVE_S = 10.0
"""How long leaving waits for interrupted workers here; the system ends the others."""


_WITHOUT_RAY = (
    "Ray is not installed, so this sweep runs in this process; hosts of a cluster need: "
    "pip install 'fleetrank[cluster]'"
)


@contextmanager
def open_dispatch_backend(
    workspace: Workspace,
    *,
    cluster: str | None,
    is_inline: bool,
    emit: Subscriber,
    silent_s: float = inf,
) -> Iterator[DispatchBackend]:
    """Connects as the command line requests; a cluster keeps running when the block ends.

    Without an address and without Ray, the sweep runs in this process, and a notice says so.

    Args:
        workspace: its results folder stores measurements left over from a local Ray.
        cluster: the address of a cluster, or `None`.
        is_inline: run in this process without Ray.
        emit: receives notices about hosts that cannot be used.
        silent_s: a host of the cluster that has never answered is restarted after this time.

    Raises:
        UsageError: both are requested, or the cluster rejects this process.
        NothingToDoError: the cluster does not answer, or has no usable host.
    """
    if cluster is not None and is_inline:
        raise UsageError("`inline=true` and `cluster=` cannot be combined", "remove one of them")
    spools = workspace.results / "spool"
    if cluster is None:
        if is_inline:
            yield _inline(spools, lambda: None)
        elif is_installed("ray"):
            yield _local(spools, emit)
        else:
            yield _inline(spools, lambda: emit(Notice(level="info", message=_WITHOUT_RAY)))
        return
    with ray_process.RayProcess() as process:
        joined = process.connect(cluster, silent_s=silent_s)
        fleet = fleet_of(joined)
        for message in (*not_used(joined.problems), *skew(fleet.hosts)):
            emit(Notice(level="warning", message=message))
        if not fleet.hosts:
            raise NothingToDoError(
                f"the cluster at {cluster} has no usable host",
                "start raylets with the label fleetrank-host=NAME; see `fleetrank doctor` with "
                "`cluster=auto`",
            )
        if joined.dashboard:
            emit(Notice(level="info", message=f"Ray's dashboard: http://{joined.dashboard}"))
        yield DispatchBackend(
            fleet=fleet,
            ask_host=process.why_unsupported,
            open_hosts=lambda sweep_id, setup: _hosts(sweep_id, setup, process, met=fleet.hosts),
        )


def _inline(spools: Path, announce: Callable[[], None]) -> DispatchBackend:
    """Runs without Ray: the host is an object of this process. `announce` is called first."""

    @contextmanager
    def open_hosts(sweep_id: str, setup: Setup) -> Iterator[Hosts]:
        announce()
        spool = spools / sweep_id
        try:
            host = Host(spool)
        except OSError as error:
            raise StoreError(
                f"results cannot be kept in {spool}: {error}",
                "free space there, or correct its permissions",
            ) from error
        try:
            with _hosts(sweep_id, setup, HostHere(host)) as opened:
                yield opened
        finally:
            is_idle = host.is_idle(_LEAVE_S)
        if is_idle:
            remove_spent(spool)

    return DispatchBackend(fleet=this_host(), open_hosts=open_hosts)


def _local(spools: Path, emit: Subscriber) -> DispatchBackend:
    """A Ray instance that runs only during one sweep; a spool that is not empty is kept."""

    @contextmanager
    def open_hosts(sweep_id: str, setup: Setup) -> Iterator[Hosts]:
        # One per sweep: with two drivers in one workspace, one would empty the other's file.
        spool = spools / sweep_id
        emit(PhaseStarted(name="starting Ray"))
        with ray_process.RayProcess() as process:
            joined = process.start(spool, silent_s=setup.spec.hosts.silent_s)
            if LOCAL_HOST not in joined.hosts:
                why = "; ".join(joined.problems.values()) or "it does not answer"
                raise OrchestratorError(
                    f"the host actor did not start: {why}",
                    "free memory on this host and try again, or use `inline=true`",
                )
            with _hosts(sweep_id, setup, process) as opened:
                yield opened
                is_idle = not opened.in_flight()
        if is_idle:
            remove_spent(spool)

    return DispatchBackend(fleet=this_host(), open_hosts=open_hosts, starts_ray=True)


def _hosts(sweep_id: str, setup: Setup, reach: Reach, *, met: Iterable[str] = ()) -> Hosts:
    placed = [
        PlacedDevice(spec=device.spec, host=host_of(device, setup.fleet))
        for device in setup.devices.values()
    ]
    # A host of this process cannot be silent while its driver is not.
    silent_s = inf if isinstance(reach, HostHere) else setup.spec.hosts.silent_s
    return Hosts(sweep_id, placed, reach, silent_s=silent_s, met=met)

"""Chooses where a sweep's tasks run: in this process, in a local Ray, or on a cluster."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path

from fleetrank.device_agents.hosts.host import Host
from fleetrank.device_agents.hosts.reach import LOCAL_HOST, HostHere, Reach
from fleetrank.device_agents.hosts.spool import remove_spent
from fleetrank.orchestrator.dispatch import ray_process
from fleetrank.orchestrator.dispatch.hosts import Hosts, PlacedDevice
from fleetrank.orchestrator.errors import (
    NothingToDoError,
    OrchestratorError,
    StoreError,
    UsageError,
)
from fleetrank.orchestrator.extras import is_installed
from fleetrank.orchestrator.progress import Subscriber
from fleetrank.orchestrator.progress_events import Notice, PhaseStarted
from fleetrank.orchestrator.sweep.cluster_status import not_used, skew
from fleetrank.orchestrator.sweep.fleet import Fleet, Refusals, fleet_of, this_host
from fleetrank.orchestrator.sweep.sweep_setup import Setup, host_of
from fleetrank.orchestrator.workspace.workspace import Workspace


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

"""Chooses where a sweep's tasks run: in this process, in a local Ray, or on a cluster."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleetrank.orchestrator.dispatch.drive.executor import Executor, InlineExecutor
from fleetrank.orchestrator.dispatch.host.spool import remove_spent
from fleetrank.orchestrator.dispatch.ray.local_ray import LOCAL_HOST
from fleetrank.orchestrator.dispatch.ray.ray_executor import PlacedDevice
from fleetrank.orchestrator.dispatch.ray.ray_process import RayProcess, RemoteExecutor
from fleetrank.orchestrator.errors import NothingToDoError, OrchestratorError, UsageError
from fleetrank.orchestrator.extras import is_installed
from fleetrank.orchestrator.progress.events import Notice, Subscriber
from fleetrank.orchestrator.sweep.cluster_status import skew
from fleetrank.orchestrator.sweep.fleet import Fleet, Refusals, fleet_of, this_host
from fleetrank.orchestrator.sweep.sweep_setup import Setup, host_of
from fleetrank.orchestrator.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchBackend:
    """Lists the hosts before a sweep is planned, and sends its tasks to them afterwards.

    Attributes:
        fleet: the hosts to plan for.
        ask_host: asks another host which executions its CPU does not support.
        executor: creates the executor of a planned sweep, by the sweep's id.
    """

    fleet: Fleet
    ask_host: Refusals | None = None
    executor: Callable[[str, Setup], AbstractContextManager[Executor]]


_WITHOUT_RAY = (
    "Ray is not installed, so this sweep runs in this process; hosts of a cluster need: "
    "pip install 'fleetrank[cluster]'"
)


@contextmanager
def open_dispatch_backend(
    workspace: Workspace, *, cluster: str | None, is_inline: bool, emit: Subscriber
) -> Iterator[DispatchBackend]:
    """Connects as the command line requests; a cluster keeps running when the block ends.

    Without an address and without Ray, the sweep runs in this process, and a notice says so.

    Args:
        workspace: its results folder stores measurements left over from a local Ray.
        cluster: the address of a cluster, or `None`.
        is_inline: run in this process without Ray.
        emit: receives notices about hosts that cannot be used.

    Raises:
        UsageError: both are requested, or the cluster rejects this process.
        NothingToDoError: the cluster does not answer, or has no usable host.
    """
    if cluster is not None and is_inline:
        raise UsageError("`inline=true` and `cluster=` cannot be combined", "remove one of them")
    if cluster is None:
        if is_inline:
            yield _inline(lambda: None)
        elif is_installed("ray"):
            yield _local(workspace.results / "spool")
        else:
            yield _inline(lambda: emit(Notice(level="info", message=_WITHOUT_RAY)))
        return
    with RayProcess() as process:
        joined = process.connect(cluster)
        left_out = [f"{problem.host} is not used: {problem.message}" for problem in joined.problems]
        fleet = fleet_of(joined)
        for message in (*left_out, *skew(fleet.hosts)):
            emit(Notice(level="warning", message=message))
        if not fleet.hosts:
            raise NothingToDoError(
                f"the cluster at {cluster} has no usable host",
                "start raylets with the label fleetrank-host=NAME; see `fleetrank cluster status`",
            )
        if joined.dashboard:
            emit(Notice(level="info", message=f"Ray's dashboard: http://{joined.dashboard}"))
        yield DispatchBackend(
            fleet=fleet,
            ask_host=process.why_unsupported,
            executor=lambda sweep_id, setup: _ray_executor(sweep_id, setup, process),
        )


def _inline(announce: Callable[[], None]) -> DispatchBackend:
    """Runs without Ray: agents run in threads of this process. `announce` is called first."""

    @contextmanager
    def executor(_sweep_id: str, setup: Setup) -> Iterator[Executor]:
        announce()
        with InlineExecutor([device.spec for device in setup.devices.values()]) as opened:
            yield opened

    return DispatchBackend(fleet=this_host(), executor=executor)


def _local(spools: Path) -> DispatchBackend:
    """A Ray instance that runs only during one sweep; a spool that is not empty is kept."""

    @contextmanager
    def executor(sweep_id: str, setup: Setup) -> Iterator[Executor]:
        # One per sweep: with two drivers in one workspace, one would empty the other's file.
        spool = spools / sweep_id
        with RayProcess() as process:
            joined = process.start(spool)
            if LOCAL_HOST not in joined.hosts:
                why = "; ".join(one.message for one in joined.problems) or "it does not answer"
                raise OrchestratorError(
                    f"the host actor did not start: {why}",
                    "free memory on this host and try again, or use `inline=true`",
                )
            with _ray_executor(sweep_id, setup, process) as opened:
                yield opened
                is_idle = not opened.in_flight()
        if is_idle:
            remove_spent(spool)

    return DispatchBackend(fleet=this_host(), executor=executor)


def _ray_executor(sweep_id: str, setup: Setup, process: RayProcess) -> RemoteExecutor:
    placed = [
        PlacedDevice(spec=device.spec, host=host_of(device, setup.fleet))
        for device in setup.devices.values()
    ]
    return RemoteExecutor(process, sweep_id, placed, setup.spec.hosts.silent_s)

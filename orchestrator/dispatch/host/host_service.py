"""The service of one host: takes tasks, measures, keeps results until they are acknowledged.

Plain Python without Ray; `host_actor` runs it on a host of a cluster.
"""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.orchestrator.dispatch.host.host_files import FilePart, HostFiles, file_names
from fleetrank.orchestrator.dispatch.host.local_devices import LocalDevices, failure_of
from fleetrank.orchestrator.dispatch.host.spool import SPOOL, Spool
from fleetrank.orchestrator.identity.cells import DeviceSpec
from fleetrank.orchestrator.identity.keys import sweep_of

_MOST_TASKS = 4096
"""Threads, one per running task; a thread is made at its first use and kept."""
_MOST_REPORTED = 100
"""Measurements in one reply: Ray sends replies above 100 kB more slowly, through raylets."""
_MARGIN_S = 60.0
"""A worker is killed at its time limit; an agent that has not returned after this hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTask:
    """A task and its device."""

    spec: DeviceSpec
    task: MeasureTask


@dataclass(frozen=True, slots=True, kw_only=True)
class PollRequest:
    """What a driver sends a host repeatedly, to get its news.

    Attributes:
        session: new for each driver and after each reply that may have been lost. In a new session
            the host offers all kept measurements again.
        acknowledged: ids of the tasks whose measurements the driver has stored.
        wait_s: how long the host waits for something to report.
    """

    sweep_id: str
    session: str
    acknowledged: tuple[str, ...] = ()
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PollReply:
    """The news of a host for a driver.

    Attributes:
        session: the session of the request.
        measurements: measurements since the session's last reply.
        running: the sweep's tasks in flight, as a mapping from task id to device.
        has_hung: an agent does not return; the host's process must be restarted.
    """

    session: str
    measurements: tuple[Measurement, ...]
    running: Mapping[str, str]
    has_hung: bool


class HostService:
    """Runs tasks in separate threads. Safe to use from any thread."""

    def __init__(self, folder: Path) -> None:
        """Reads the measurements that an earlier process of this host left in its folder."""
        self._devices = LocalDevices()
        self._spool = Spool(folder / SPOOL)
        self._files = HostFiles(folder / "files")
        self._running: dict[str, DeviceTask] = {}
        # Answers of devices that are not fit. They are worth nothing after a crash, and never in
        # the spool: the driver sends the same task again.
        self._not_fit: dict[str, Measurement] = {}
        self._arrived = threading.Condition()
        self._sessions: dict[str, tuple[str, set[str]]] = {}
        self._pool = ThreadPoolExecutor(max_workers=_MOST_TASKS)

    @property
    def n_kept(self) -> int:
        """Number of measurements that no driver has acknowledged yet."""
        return len(self._spool)

    @property
    def running(self) -> frozenset[str]:
        """Ids of the tasks in flight, of all sweeps."""
        with self._arrived:
            return frozenset(self._running)

    def accept(self, tasks: Sequence[DeviceTask], *, has_files: bool) -> Sequence[str]:
        """Starts tasks; returns at once. A task that is in flight or already measured is skipped.

        Args:
            tasks: at most one per device.
            has_files: whether the paths in the tasks are valid on this host.

        Returns:
            The files that must be sent first; tasks that need one of them are not accepted.
        """
        needs = [() if has_files else file_names(given.task) for given in tasks]
        missing = frozenset(self._files.missing(name for names in needs for name in names))
        for given, names in zip(tasks, needs, strict=True):
            if not missing.isdisjoint(names):
                continue
            with self._arrived:
                task_id = given.task.task_id
                if task_id in self._running or task_id in self._spool:
                    continue
                self._running[task_id] = given
                self._forget_not_fit(task_id)
            self._pool.submit(self._measure, given, has_files=has_files)
        return sorted(missing)

    def receive(self, part: FilePart) -> None:
        """Stores one part of a file that the driver sends."""
        with self._arrived:
            tasks = tuple(self._running.values())
        self._files.receive(part, {name for given in tasks for name in file_names(given.task)})

    def poll(self, request: PollRequest) -> PollReply:
        """Deletes acknowledged measurements, waits for new ones, syncs them and returns them."""
        self._spool.forget(request.acknowledged)
        sweep_id = request.sweep_id
        with self._arrived:
            for task_id in request.acknowledged:
                self._not_fit.pop(task_id, None)
            session, offered = self._sessions.get(sweep_id, ("", set[str]()))
            is_first = session != request.session
            if is_first:
                offered = set[str]()
                self._sessions[sweep_id] = request.session, offered
            offered -= set(request.acknowledged)
            found = self._news(sweep_id, offered)
            if not found and self._arrived.wait(request.wait_s):
                found = self._news(sweep_id, offered)
            # The first reply names all tasks: the driver assumes that any other task is lost.
            found = found if is_first else found[:_MOST_REPORTED]
            offered |= {measurement.task_id for measurement in found}
            running = {
                task_id: given.spec.name
                for task_id, given in self._running.items()
                if sweep_of(task_id) == sweep_id
            }
        self._spool.sync()
        return PollReply(
            session=request.session,
            measurements=tuple(found),
            running=running,
            has_hung=bool(self._devices.overdue(_MARGIN_S)),
        )

    def facts(self, specs: Sequence[DeviceSpec]) -> Mapping[str, DeviceFacts]:
        """Probes devices in parallel; a device that does not answer is left out."""
        return self._devices.facts(specs)

    def probe(self, spec: DeviceSpec) -> DeviceFacts | Failure:
        """Probes a device; returns its facts or the failure."""
        return self._devices.probe(spec)

    def finish_rounds(self, sweep_id: str) -> None:
        """Ends the running rounds of a sweep after their current blocks."""
        self._devices.finish_rounds(sweep_id)

    def interrupt(self, sweep_id: str) -> None:
        """Ends the running tasks of a sweep; each returns as `interrupted`."""
        self._devices.interrupt(sweep_id)

    def _measure(self, given: DeviceTask, *, has_files: bool) -> None:
        try:
            task = given.task if has_files else self._files.here(given.task)
            self._keep(self._devices.measure(given.spec, task))
        except Exception as error:
            # Also for a value that the spool cannot store: a task that never ends would be worse.
            failure = failure_of(error)
            self._keep(failed(given.task.task_id, failure, given.spec.origin))

    def _keep(self, measurement: Measurement) -> None:
        with self._arrived:
            if measurement.failure is not None and measurement.failure.wait is not None:
                self._not_fit[measurement.task_id] = measurement
            else:
                self._spool.add(measurement)
            del self._running[measurement.task_id]
            self._arrived.notify_all()

    def _news(self, sweep_id: str, offered: set[str]) -> Sequence[Measurement]:
        not_fit = [
            found
            for task_id, found in self._not_fit.items()
            if task_id not in offered and sweep_of(task_id) == sweep_id
        ]
        return [*self._spool.of_sweep(sweep_id, without=offered), *not_fit]

    def _forget_not_fit(self, task_id: str) -> None:
        """Forgets the earlier answer of a task that comes again; its next answer is offered."""
        if self._not_fit.pop(task_id, None) is not None:
            for _, offered in self._sessions.values():
                offered.discard(task_id)

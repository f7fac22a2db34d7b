"""One host's part of a sweep: takes orders, measures, and keeps results until they are stored.

Plain Python without Ray: `host_actor` puts it on a host of a cluster.
"""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.contract.device_facts import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.orchestrator.dispatch.host.device_bench import DeviceBench, failure_of
from fleetrank.orchestrator.dispatch.host.host_files import FilePart, HostFiles, file_names
from fleetrank.orchestrator.dispatch.host.spool import SPOOL, Spool
from fleetrank.orchestrator.workspace.device_spec import DeviceSpec

_MOST_TASKS = 4096
"""Threads, one per task under way; each is made when it is needed first and kept."""
_MOST_TOLD = 100
"""Measurements in one answer: Ray takes a reply above 100 kB the long way, through raylets."""
_MARGIN_S = 60.0
"""A worker is killed at its time limit; an agent silent for so long after it hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A task and the device it is for."""

    spec: DeviceSpec
    task: MeasureTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a driver asks a host again and again.

    Attributes:
        session: new for each driver, and after each answer that may have been lost: with a new
            session everything kept is offered again.
        acknowledged: task ids that the driver has stored.
        wait_s: how long to wait for something to tell.
    """

    sweep_id: str
    session: str
    acknowledged: tuple[str, ...] = ()
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a host has to tell a driver.

    Attributes:
        session: of the question it answers.
        measurements: new since the session's last answer.
        running: the sweep's tasks under way, to the device each is on.
        has_hung: some agent does not come back; a new process of the host is wanted.
    """

    session: str
    measurements: tuple[Measurement, ...]
    running: Mapping[str, str]
    has_hung: bool


class HostService:
    """Runs tasks in threads of its own. Safe to use from any thread."""

    def __init__(self, folder: Path) -> None:
        """Takes up what an earlier process of this host left in its folder."""
        self._bench = DeviceBench()
        self._spool = Spool(folder / SPOOL)
        self._files = HostFiles(folder / "files")
        self._running: dict[str, Order] = {}
        self._arrived = threading.Condition()
        self._sessions: dict[str, tuple[str, set[str]]] = {}
        # A worker dies with the thread that started it; the pool keeps its threads to the end.
        self._pool = ThreadPoolExecutor(max_workers=_MOST_TASKS)

    @property
    def n_kept(self) -> int:
        """Measurements that wait for a driver to store them."""
        return len(self._spool)

    @property
    def running(self) -> frozenset[str]:
        """Tasks of all sweeps under way."""
        with self._arrived:
            return frozenset(self._running)

    def accept(self, orders: Sequence[Order], *, has_files: bool) -> Sequence[str]:
        """Starts tasks; returns at once. One that is under way or measured already is no new one.

        Args:
            orders: at most one per device.
            has_files: the paths in the tasks hold on this host.

        Returns:
            The files that have to be sent first; orders that need one of them are not taken.
        """
        needs = [() if has_files else file_names(order.task) for order in orders]
        missing = frozenset(self._files.missing(name for names in needs for name in names))
        for order, names in zip(orders, needs, strict=True):
            if not missing.isdisjoint(names):
                continue
            with self._arrived:
                task_id = order.task.task_id
                if task_id in self._running or task_id in self._spool:
                    continue
                self._running[task_id] = order
            self._pool.submit(self._measure, order, has_files=has_files)
        return sorted(missing)

    def receive(self, part: FilePart) -> None:
        """Takes a stretch of a file; see `HostFiles.receive`."""
        with self._arrived:
            orders = tuple(self._running.values())
        self._files.receive(part, {name for order in orders for name in file_names(order.task)})

    def ask(self, question: Question) -> Answer:
        """Lets go of what the driver has stored, waits for something new, and makes it durable."""
        self._spool.forget(question.acknowledged)
        sweep_id = question.sweep_id
        with self._arrived:
            session, offered = self._sessions.get(sweep_id, ("", set[str]()))
            is_first = session != question.session
            if is_first:
                offered = set[str]()
                self._sessions[sweep_id] = question.session, offered
            offered -= set(question.acknowledged)
            found = self._news(sweep_id, offered)
            if not found and self._arrived.wait(question.wait_s):
                found = self._news(sweep_id, offered)
            # The first answer tells all: what it does not name, the driver takes for lost.
            found = found if is_first else found[:_MOST_TOLD]
            offered |= {measurement.task_id for measurement in found}
            running = {
                task_id: order.spec.name
                for task_id, order in self._running.items()
                if task_id.startswith(f"{sweep_id}/")
            }
        self._spool.sync()
        return Answer(
            session=question.session,
            measurements=tuple(found),
            running=running,
            has_hung=bool(self._bench.overdue(_MARGIN_S)),
        )

    def facts(self, specs: Sequence[DeviceSpec]) -> Mapping[str, DeviceFacts]:
        """Probes devices; see `DeviceBench.facts`."""
        return self._bench.facts(specs)

    def probe(self, spec: DeviceSpec) -> DeviceFacts | Failure:
        """Asks a device what it is."""
        return self._bench.probe(spec)

    def interrupt(self, sweep_id: str) -> None:
        """Ends what a sweep measures now; each task comes back as `interrupted`."""
        self._bench.interrupt(f"{sweep_id}/")

    def _measure(self, order: Order, *, has_files: bool) -> None:
        try:
            task = order.task if has_files else self._files.here(order.task)
            self._keep(self._bench.measure(order.spec, task))
        except Exception as error:
            # A figure that no spool can hold among them: a task that never ends is worse.
            failure = failure_of(error)
            self._keep(failed(order.task.task_id, failure, order.spec.origin))

    def _keep(self, measurement: Measurement) -> None:
        with self._arrived:
            self._spool.add(measurement)
            del self._running[measurement.task_id]
            self._arrived.notify_all()

    def _news(self, sweep_id: str, offered: set[str]) -> Sequence[Measurement]:
        return self._spool.of_sweep(sweep_id, without=offered)

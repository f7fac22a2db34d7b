"""A host: it takes tasks, measures, and keeps results until a driver has acknowledged them.

A plain class. A sweep without Ray has one in its own process; `ray_hosts` makes it an actor on each
host of a cluster.
"""

import queue
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from time import perf_counter, sleep

from fleetrank.device_agents.contract.agent import (
    Agent,
    DeviceFacts,
    RoundAgent,
    StopRequested,
    never_stop,
)
from fleetrank.device_agents.contract.failures import failure_from_error, interrupted
from fleetrank.device_agents.contract.kind import HostShare
from fleetrank.device_agents.contract.measurement import (
    Failure,
    Measurement,
    failed,
    with_possible_times,
)
from fleetrank.device_agents.contract.task import Execution, MeasureTask, sweep_of
from fleetrank.device_agents.errors import HOST_PATIENCE_S, NotFitError, TransientError, host_in_use
from fleetrank.device_agents.hold import CommandHold, KeptHold, Reservation
from fleetrank.device_agents.hosts.facts import HostFacts, read_host_facts, seen_devices
from fleetrank.device_agents.hosts.files import HostFiles, file_names, waiting_for
from fleetrank.device_agents.hosts.messages import (
    DeviceSpec,
    DeviceTask,
    FilePart,
    PollReply,
    PollRequest,
)
from fleetrank.device_agents.hosts.spool import SPOOL, Spool
from fleetrank.device_agents.registry import create_agent, makers_of
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.lease import Use, host_lease
from fleetrank.foundation.reading_beside import ReadingWatch
from fleetrank.foundation.vocabulary import ErrorKind, Flag

_MOST_REPORTED = 100
"""Measurements in one reply: Ray sends replies above 100 kB more slowly, through raylets."""
_BATCH_S = 0.02
"""Measurements of this period share a reply, because a reply costs more than a measurement. A host
that has no other task running replies at once."""
_MARGIN_S = 60.0
"""A worker is killed at its time limit; an agent that has not returned after this hangs."""
_MOST_PROBES = 32
"""Probes in parallel: a phone that hangs takes half a minute, and threads are cheap."""
_POLL_S = 0.1
"""How often a task that waits for its device checks whether it was cancelled."""
_GATHER_S = 60.0
"""A round starts without a task that has not come by then: its driver died, or its file is lost."""


@dataclass(slots=True)
class _Running:
    """A task in flight; `deadline_s` is `None` while it waits for its device."""

    given: DeviceTask
    stop: threading.Event = field(default_factory=threading.Event)
    finish: threading.Event = field(default_factory=threading.Event)
    deadline_s: float | None = None

    def is_over(self) -> bool:
        """Whether its wait ends: a task that only waits has nothing to finish."""
        return self.stop.is_set() or self.finish.is_set()


@dataclass(slots=True)
class _Round:
    """Tasks that wait for each other, and their answers."""

    tasks: dict[str, MeasureTask] = field(default_factory=dict)
    is_complete: threading.Event = field(default_factory=threading.Event)
    answers: dict[str, Measurement] = field(default_factory=dict)
    error: Exception | None = None
    is_over: threading.Event = field(default_factory=threading.Event)


class _Threads:
    """Threads that are kept for later work; none keeps the process from ending, as a hung agent's.

    A worker ends with the thread that starts it, so a thread lives longer than its work.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._n_idle = threading.Semaphore(0)

    def start(self, work: Callable[[], None]) -> None:
        """Starts work in an idle thread, or in a new one."""
        if not self._n_idle.acquire(blocking=False):
            threading.Thread(target=self._run, daemon=True).start()
        self._work.put(work)

    def _run(self) -> None:
        while True:
            self._work.get()()
            self._n_idle.release()


class Host:
    """Drives the devices of one host, one thread per task. Safe to use from any thread.

    When its process ends, finished measurements remain in the spool and running tasks are lost; the
    driver decides whether to retry them.

    Attributes:
        patience_s: how long a task waits for its device and the host before it says so.
        most_kept: measurements that no driver fetched; `None` keeps all.
    """

    patience_s = HOST_PATIENCE_S
    most_kept: int | None = None

    def __init__(self, folder: Path) -> None:
        """Reads the measurements that an earlier process of this host left in its folder.

        Raises:
            OSError: the folder cannot be written.
        """
        self._spool = Spool(folder / SPOOL, self.most_kept)
        self._files = HostFiles(folder / "files")
        self._running: dict[str, _Running] = {}
        # Answers of devices that are not fit. They are worth nothing after a crash, and never in
        # the spool: the driver sends the same task again.
        self._not_fit: dict[str, Measurement] = {}
        self._sessions: dict[str, tuple[str, set[str]]] = {}
        self._agents: dict[DeviceSpec, Agent] = {}
        self._turns: dict[str, threading.Lock] = {}
        self._users: dict[str, str] = {}
        self._rounds: dict[tuple[str, ...], _Round] = {}
        self._holds: dict[Reservation, KeptHold] = {}
        self._threads = _Threads()
        self._changed = threading.Condition()

    def describe(self) -> HostFacts:
        """Returns the facts of this host and the number of its tasks."""
        return replace(
            read_host_facts(),
            seen=seen_devices(),
            n_running=len(self._running),
            n_kept=len(self._spool),
        )

    def clock_s(self) -> float:
        """The time of this host's clock, in seconds since 1970."""
        return datetime.now(timezone.utc).timestamp()

    def accept(self, tasks: Sequence[DeviceTask], has_files: bool = False) -> Sequence[str]:
        """Starts tasks; returns at once. A task that is in flight or already measured is skipped.

        Args:
            tasks: at most one per device, or the tasks of one round.
            has_files: whether the paths in the tasks are valid on this host.

        Returns:
            The files that must be sent first; the tasks `waiting_for` them are not accepted.
        """
        needed = [] if has_files else [name for one in tasks for name in file_names(one.task)]
        missing = self._files.missing(needed)
        waiting = waiting_for(missing, [given.task for given in tasks])
        for given in tasks:
            task_id = given.task.task_id
            with self._changed:
                if task_id in waiting or task_id in self._running or task_id in self._spool:
                    continue
                running = self._running[task_id] = _Running(given)
                # Its earlier answer is forgotten, and its next one is offered.
                if self._not_fit.pop(task_id, None) is not None:
                    for _, offered in self._sessions.values():
                        offered.discard(task_id)
            self._threads.start(partial(self._run, running, has_files))
        return missing

    def receive(self, part: FilePart) -> None:
        """Stores one part of a file that the driver sends."""
        with self._changed:
            tasks = [running.given.task for running in self._running.values()]
        self._files.receive(part, {name for task in tasks for name in file_names(task)})

    def poll(self, request: PollRequest) -> PollReply:
        """Deletes acknowledged measurements, waits for new ones, syncs them and returns them."""
        self._spool.forget(request.acknowledged)
        sweep_id = request.sweep_id
        with self._changed:
            for task_id in request.acknowledged:
                self._not_fit.pop(task_id, None)
            session, offered = self._sessions.get(sweep_id, ("", set[str]()))
            is_first = session != request.session
            if is_first:
                offered = set[str]()
                self._sessions[sweep_id] = request.session, offered
            offered -= set(request.acknowledged)
            has_news = bool(self._news(sweep_id, offered)) or self._changed.wait(request.wait_s)
            is_busy = has_news and not is_first and bool(self._running)
        if is_busy:
            sleep(_BATCH_S)
        with self._changed:
            found = self._news(sweep_id, offered)
            # The first reply names all tasks: the driver assumes that any other task is lost.
            found = found if is_first else found[:_MOST_REPORTED]
            offered |= {measurement.task_id for measurement in found}
            running = tuple(
                (task_id, running.given.spec.name)
                for task_id, running in self._running.items()
                if sweep_of(task_id) == sweep_id
            )
        self._spool.sync()
        return PollReply(
            session=request.session,
            measurements=tuple(found),
            running=running,
            has_hung=bool(self.overdue(_MARGIN_S)),
        )

    def facts(self, specs: Sequence[DeviceSpec]) -> Mapping[str, DeviceFacts]:
        """Probes devices in parallel; a device that does not answer is left out."""
        with ThreadPoolExecutor(max_workers=max(1, min(len(specs), _MOST_PROBES))) as pool:
            answers = list(pool.map(self.probe, specs))
        return {
            spec.name: answer
            for spec, answer in zip(specs, answers, strict=True)
            if isinstance(answer, DeviceFacts)
        }

    def probe(self, spec: DeviceSpec) -> DeviceFacts | Failure:
        """Probes a device; returns its facts or the failure."""
        try:
            if spec.power is not None:
                spec.power.require()
            with self._reserved(spec):
                return self._agent(spec).probe()
        except Exception as error:
            return _failure_of(error)

    def cycle_power(self, spec: DeviceSpec) -> str | None:
        """Switches a device off and on; returns why that failed, or `None`.

        Tasks on its unit wait meanwhile; while one runs, nothing is switched.
        """
        if spec.power is None:
            return "its device file has no `power`"
        unit = {one.name for one in list(self._agents) if one.ties & spec.ties} | {spec.name}
        with ExitStack() as stack:
            for name in sorted(unit):
                with self._changed:
                    turn = self._turns.setdefault(name, threading.Lock())
                if not turn.acquire(blocking=False):
                    return f"{name} is used by {self._users.get(name, 'another task')}"
                stack.callback(turn.release)
                self._users[name] = "a command that switches it off and on"
            try:
                with self._reserved(spec):
                    return spec.power.switch()
            except FleetError as error:
                return error.message

    def why_unsupported(self, spec: DeviceSpec, execution: Execution) -> str | None:
        """Returns why a device cannot run an execution; `None` if it can."""
        return self._create_agent(spec).why_unsupported(execution)

    def overdue(self, margin_s: float) -> Sequence[str]:
        """Tasks whose deadline passed more than `margin_s` ago: their agent hangs."""
        late_s = perf_counter() - margin_s
        with self._changed:
            return [
                task_id
                for task_id, running in self._running.items()
                if running.deadline_s is not None and running.deadline_s < late_s
            ]

    def finish_rounds(self, sweep_id: str) -> None:
        """Ends the running rounds of a sweep after their current blocks.

        Tasks that wait for their device or for the lease of the host end at once.
        """
        for running in self._of_sweep(sweep_id):
            running.finish.set()

    def interrupt(self, sweep_id: str) -> None:
        """Ends the running tasks of a sweep; each returns as `interrupted`; later tasks still run.

        An agent needs some time to end its worker: `is_idle` waits for that.
        """
        for running in self._of_sweep(sweep_id):
            running.stop.set()

    def is_idle(self, timeout_s: float) -> bool:
        """Waits until no task runs; returns whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, timeout_s)

    def _of_sweep(self, sweep_id: str) -> Sequence[_Running]:
        with self._changed:
            return [one for id_, one in self._running.items() if sweep_of(id_) == sweep_id]

    def _news(self, sweep_id: str, offered: set[str]) -> Sequence[Measurement]:
        not_fit = [
            found
            for task_id, found in self._not_fit.items()
            if task_id not in offered and sweep_of(task_id) == sweep_id
        ]
        return [*self._spool.of_sweep(sweep_id, without=offered), *not_fit]

    def _run(self, running: _Running, has_files: bool) -> None:
        """Measures a task and keeps its measurement; an unexpected error becomes a failed one."""
        spec, task = running.given.spec, running.given.task
        asked_s = perf_counter()
        try:
            found = self._measure(spec, task if has_files else self._files.here(task), running)
            self._keep(found)
        except NotFitError as error:
            found = failed(task.task_id, _failure_of(error), spec.origin)
            self._keep(replace(found, waited_s=perf_counter() - asked_s))
        except Exception as error:
            # Also for a value that the spool cannot store: a task that never ends would be worse.
            makers = makers_of(spec.kind, task.execution.runtime)
            found = failed(task.task_id, _failure_of(error, *makers), spec.origin)
            self._keep(replace(found, packages=makers))

    def _keep(self, measurement: Measurement) -> None:
        with self._changed:
            if self._is_void(measurement):
                self._not_fit[measurement.task_id] = measurement
            else:
                self._spool.add(measurement)
            del self._running[measurement.task_id]
            self._changed.notify_all()

    def _is_void(self, measurement: Measurement) -> bool:
        """Whether nothing was tried, so the driver sends the same task again."""
        return measurement.failure is not None and measurement.failure.wait is not None

    def _measure(self, spec: DeviceSpec, task: MeasureTask, running: _Running) -> Measurement:
        """Measures a task, or the round that it is of; each task of a round has its thread.

        The thread that comes first waits for the others and measures all tasks. An error of it is
        an error of every task.
        """
        if len(task.members) < 2:
            return self._measure_together(spec, [task], running)[0]
        with self._changed:
            found = self._rounds.setdefault(task.members, _Round())
            is_first = not found.tasks
            found.tasks[task.task_id] = task
            if len(found.tasks) == len(task.members):
                found.is_complete.set()
        if is_first:
            found.is_complete.wait(_GATHER_S)
            with self._changed:
                del self._rounds[task.members]
            tasks = [found.tasks[task_id] for task_id in task.members if task_id in found.tasks]
            try:
                answers = self._measure_together(spec, tasks, running)
                found.answers = {answer.task_id: answer for answer in answers}
            except Exception as error:
                found.error = error
            finally:
                found.is_over.set()
        found.is_over.wait()
        if found.error is not None:
            raise found.error
        return found.answers[task.task_id]

    def _measure_together(
        self, spec: DeviceSpec, tasks: Sequence[MeasureTask], running: _Running
    ) -> Sequence[Measurement]:
        """A device runs one task at a time, or the tasks of one round.

        A task of a second sweep waits, and a task waits while another process has the lease of the
        host. Time limits do not include waiting. After some seconds of it the answer is the failure
        of a device that is not fit yet, with the reason: the same task is sent again.
        """
        asked_s = perf_counter()
        with self._reserved(spec) as is_lost, self._turn(spec, tasks[0], running) as is_held:
            if not is_held:
                return [failed(task.task_id, interrupted(), spec.origin) for task in tasks]
            agent = self._agent(spec)
            watch = ReadingWatch() if spec.share is HostShare.ALONE else None
            began_s = perf_counter()
            running.deadline_s = began_s + sum(map(agent.longest_s, tasks))

            def must_stop() -> bool:
                return running.stop.is_set() or is_lost()

            if tasks[0].blocks is not None and isinstance(agent, RoundAgent):
                found = agent.measure_round(tasks, must_stop, running.finish.is_set)
            else:
                found = [agent.measure(task, must_stop) for task in tasks]
            took_s = perf_counter() - began_s
            is_beside = watch is not None and watch.has_seen()
        beside = (Flag.BESIDE_READING,) if is_beside else ()
        return [
            with_possible_times(
                replace(
                    one,
                    task_id=task.task_id,  # also of an agent of another package that errs
                    waited_s=began_s - asked_s,
                    flags=(*one.flags, *beside),
                    packages=makers_of(spec.kind, task.execution.runtime),
                ),
                took_s,
            )
            for task, one in zip(tasks, found, strict=True)
        ]

    @contextmanager
    def _turn(self, spec: DeviceSpec, task: MeasureTask, running: _Running) -> Iterator[bool]:
        """Holds the device and the host's lease for one task; false if stopped before that.

        Raises:
            NotFitError: another sweep still has the device or the host.
        """
        until_s = perf_counter() + self.patience_s

        with self._changed:
            turn = self._turns.setdefault(spec.name, threading.Lock())
        while not turn.acquire(timeout=_POLL_S):
            if running.is_over():
                yield False
                return
            if perf_counter() >= until_s:
                raise host_in_use(self._users.get(spec.name, ""))
        try:
            sweep, now = sweep_of(task.task_id), datetime.now(timezone.utc)
            self._users[spec.name] = f"sweep {sweep} (since {now.isoformat(timespec='seconds')})"
            if spec.share is HostShare.NONE:
                yield True
                return
            purpose = f"sweep {sweep}, which measures on this host"
            with host_lease(
                purpose,
                use=Use.BESIDE if spec.share is HostShare.BESIDE else Use.TIMES,
                give_up=running.is_over,
                limit_s=until_s - perf_counter(),
                busy=host_in_use,
            ) as is_held:
                yield is_held
        finally:
            turn.release()

    @contextmanager
    def _reserved(self, spec: DeviceSpec) -> Iterator[StopRequested]:
        """Reserves a device for the block, if its file says how; yields whether that is lost.

        It stays reserved for the next block, also of another device with the same reservation.
        """
        if spec.reserve is None:
            yield never_stop
            return
        with self._changed:
            new = KeptHold(CommandHold(spec.reserve))
            hold = self._holds.setdefault(spec.reserve, new)
        with hold.used() as taken:
            yield taken.is_lost

    def release(self, reservations: Collection[Reservation]) -> None:
        """Gives reserved devices back; one that is in use, at the end of its task."""
        for one in reservations:
            if one in self._holds:
                self._holds[one].leave()

    def _agent(self, spec: DeviceSpec) -> Agent:
        if spec not in self._agents:
            self._agents[spec] = self._create_agent(spec)
        return self._agents[spec]

    def _create_agent(self, spec: DeviceSpec) -> Agent:
        return create_agent(spec.kind, dict(spec.options))


def _failure_of(error: Exception, *makers: str) -> Failure:
    """Turns an error of an agent, or an unexpected error, into the failure of the attempt.

    `makers` are the packages beside fleetrank whose code ran.
    """
    if isinstance(error, NotFitError):
        return failure_from_error(error, "start")
    if isinstance(error, FleetError):
        kind, message, remedy = ErrorKind.DEVICE_LOST, error.message, error.remedy
    else:
        kind, message = ErrorKind.INTERNAL, f"{type(error).__name__}: {error}"
        remedy = (
            f"this is a bug in {' or '.join(makers) or 'fleetrank'}; run with `inline=true` and "
            "`debug=true` to see where"
        )
    return Failure(
        kind=kind,
        message=message,
        remedy=remedy,
        is_transient=isinstance(error, TransientError),
        stage="start",
    )

"""The control loop: polls, stores rows, asks the pure functions what is next, acts, emits."""

import logging
from collections.abc import Callable
from random import Random

from fleetrank.device_agents.contract.device_facts import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.dispatch.decide import retry
from fleetrank.orchestrator.dispatch.decide.assign import next_assignments
from fleetrank.orchestrator.dispatch.decide.late_results import adopted, attempt_of, is_running
from fleetrank.orchestrator.dispatch.decide.queues import Queues
from fleetrank.orchestrator.dispatch.decide.state import (
    DispatchState,
    Lane,
    next_moment_s,
    started,
    stopping,
    without,
)
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.dispatch.decide.work import (
    SweepWork,
    attempts_left,
    canary_of,
    failed_attempts,
    task_id_of,
    task_of,
)
from fleetrank.orchestrator.dispatch.drive.heartbeat import Heartbeat
from fleetrank.orchestrator.dispatch.drive.ports import Ports
from fleetrank.orchestrator.dispatch.drive.probes import Probes
from fleetrank.orchestrator.dispatch.drive.recorder import Recorder
from fleetrank.orchestrator.dispatch.drive.stop_switch import STOPPING
from fleetrank.orchestrator.identity.cells import Attempt, Cell, Repeat
from fleetrank.orchestrator.progress.events import Notice, RepeatStarted

_log = logging.getLogger(__name__)

_POLL_S = 0.25
"""Longest sleep between two checks of the stop switch; a user does not notice this delay."""
_GRACE_S = 15.0
"""After 'stop now' the sweep waits this long for its workers and then ends without them."""


class Controller:
    """Runs one sweep to its end; the decisions are in `dispatch.decide`."""

    def __init__(self, work: SweepWork, tally: Tally, ports: Ports) -> None:
        self._work = work
        self._tally = tally
        self._ports = ports
        self._emit = Heartbeat(ports.emit, ports.clock)
        self._recorder = Recorder(work, tally, ports.sink, self._emit, ports.clock)
        self._rules = retry.RetryRules(
            max_attempts=work.plan.max_attempts, host_wait_s=work.plan.host_wait_s
        )
        # Jitter needs no cryptographic randomness, and a seed makes a test repeatable.
        self._random = Random(work.plan.seed)  # noqa: S311
        self._interrupted_s: float | None = None
        self._facts = dict(ports.executor.facts())
        self._probes = Probes(ports.executor.probe)
        self._cells = {cell.cell_key: cell for cell in work.plan.cells}
        self._queues = Queues(work, tally)
        self._state = DispatchState(
            lanes={name: self._new_lane(name) for name in self._queues.devices}
        )
        self._flights: dict[str, str] = {}
        self._held: dict[Repeat, Measurement] = {}

    def run(self) -> None:
        """Measures until no attempt is left or a stop is requested; rows go to the sink.

        Raises:
            StoreError: the results cannot be written. All rows stored before are kept. Running
                attempts were waited for, and their rows were tried once more.
        """
        for attempt, failure in failed_attempts(self._work.plan, self._work.failures, self._tally):
            self._store_untried(attempt, failure)
        self._take_over()
        self._refill_all()
        while not self._is_over():
            self._obey_switch()
            self._probe()
            self._assign()
            self._collect()
            self._keep_up_when_quiet()
            self._emit.beat(self._state.lanes.values())
        for measurement in self._held.values():
            self._finish_late(measurement)
        self._ports.executor.acknowledge(self._recorder.flush())
        if self._recorder.error is not None:
            raise self._recorder.error

    def _take_over(self) -> None:
        """Continues after an earlier driver: adopts its stored and its running attempts.

        An attempt that it started and did not store is stored under the same attempt number.
        """
        for task_id, device in self._ports.executor.under_way().items():
            attempt = self._named(task_id)
            lane = self._state.lanes.get(device)
            if attempt is not None and lane is not None and lane.running is None:
                self._state = started(self._state, device, attempt)
                self._flights[task_id] = device
                self._queues.leave_out(attempt.repeat)
        for measurement in self._ports.executor.poll(0.0):
            self._finish(measurement)

    def _new_lane(self, device: str) -> Lane:
        place = self._work.places[device]
        return Lane(
            device=device,
            host=place.host,
            needs_quiet=place.needs_quiet,
            # A device that did not answer at the start is probed again, like one that was set
            # aside.
            probe_at_s=None if device in self._facts else self._ports.clock(),
        )

    def _is_over(self) -> bool:
        if self._state.is_over:
            return True
        since_s = self._interrupted_s
        return since_s is not None and self._ports.clock() - since_s > _GRACE_S

    def _obey_switch(self) -> None:
        if self._recorder.error is not None:
            self._state = stopping(self._state)
        if self._ports.switch.is_stopping and not self._state.is_stopping:
            self._state = stopping(self._state)
            self._notice("info", STOPPING)
        if self._ports.switch.is_now and self._interrupted_s is None:
            self._interrupted_s = self._ports.clock()
            self._ports.executor.interrupt()

    def _probe(self) -> None:
        now_s = self._ports.clock()
        if self._state.is_stopping:
            return
        for lane in self._state.lanes.values():
            if lane.probe_at_s is not None and lane.probe_at_s <= now_s:
                self._probes.start(lane.device)
        for device, answer in self._probes.answers():
            self._take_answer(device, answer)

    def _take_answer(self, device: str, answer: DeviceFacts | Failure) -> None:
        self._state = retry.probed(
            self._state,
            device,
            answer if isinstance(answer, Failure) else None,
            rules=self._rules,
            now_s=self._ports.clock(),
        )
        if isinstance(answer, DeviceFacts):
            self._facts[device] = answer
            self._notice("info", f"{device} answers again")
        elif self._state.lanes[device].is_given_up:
            self._notice(
                "warning",
                f"{device} is given up: {answer.message}; "
                "`fleetrank sweep resume` measures what is left",
            )
            self._refill_all()

    def _assign(self) -> None:
        for assignment in next_assignments(self._state, self._ports.clock()):
            device, attempt = assignment.device, assignment.attempt
            self._state = started(self._state, device, attempt)
            self._refill(device)
            canary = canary_of(self._work, self._state.lanes[device])
            task = task_of(self._work, attempt, canary)
            self._flights[task.task_id] = device
            self._ports.executor.submit(device, task)
            self._emit(
                RepeatStarted(
                    device=device,
                    host=self._work.places[device].host,
                    label=attempt.repeat.cell.label,
                    repeat=attempt.repeat.index,
                    attempt=attempt.number,
                    origin=self._work.places[device].origin,
                )
            )

    def _refill(self, device: str) -> None:
        self._state = self._queues.refilled(self._state, device, self._facts)

    def _refill_all(self) -> None:
        for device in self._state.lanes:
            self._refill(device)

    def _collect(self) -> None:
        now_s = self._ports.clock()
        next_s = next_moment_s(self._state.lanes.values(), now_s)
        wait_s = _POLL_S if next_s is None else min(_POLL_S, next_s - now_s)
        for measurement in self._ports.executor.poll(wait_s):
            self._finish(measurement)

    def _finish(self, measurement: Measurement) -> None:
        device = self._flights.pop(measurement.task_id, None)
        attempt = None if device is None else self._state.lanes[device].running
        if device is None or attempt is None:
            self._hold_or_finish(measurement)
            return
        self._recorder.take(measurement.task_id)
        self._state, will_retry = retry.finished(
            self._state,
            device,
            measurement.failure,
            rules=self._rules,
            now_s=self._ports.clock(),
            jitter=self._random.random(),
        )
        self._store(device, attempt, measurement, will_retry=will_retry)
        if (held := self._held.pop(attempt.repeat, None)) is not None:
            self._finish_late(held)
        self._pass_over(attempt.repeat.cell)
        self._tell_of_trouble(device, measurement.failure)

    def _hold_or_finish(self, measurement: Measurement) -> None:
        """Keeps a late result: it can still be used if another attempt at its repeat fails.

        Its host keeps it too, because it is acknowledged only when it is stored or discarded.
        """
        attempt = self._named(measurement.task_id)
        if attempt is not None and is_running(self._state, attempt.repeat):
            self._held[attempt.repeat] = measurement
        else:
            self._finish_late(measurement)

    def _finish_late(self, measurement: Measurement) -> None:
        """Stores late results that can still be used, so that no valid measurement is lost."""
        self._recorder.take(measurement.task_id)
        attempt = self._named(measurement.task_id)
        use = None if attempt is None else adopted(attempt, measurement, self._tally)
        if use is None:
            _log.info("a late measurement: %s", measurement.task_id)
            return
        self._strike(lambda repeat: repeat == use.repeat)
        self._store(use.device, use, measurement, will_retry=True)
        self._refill_all()

    def _strike(self, is_done: Callable[[Repeat], bool]) -> None:
        for device in self._state.lanes:
            self._state = without(self._state, device, is_done)

    def _named(self, task_id: str) -> Attempt | None:
        return attempt_of(task_id, self._work.sweep.sweep_id, self._cells, self._work.places)

    def _tell_of_trouble(self, device: str, failure: Failure | None) -> None:
        if failure is not None and failure.kind is ErrorKind.HOST_LOST:
            self._notice("warning", f"{failure.message}; {device} waits for it")
        elif self._state.lanes[device].probe_at_s is not None:
            self._notice("warning", f"{device} failed repeatedly and is set aside until it answers")

    def _pass_over(self, cell: Cell) -> None:
        """Ends the remaining repeats of a cell after a failure that every repeat would have."""
        failure = self._tally.verdict(cell.cell_key)
        if failure is None:
            return
        self._strike(lambda repeat: repeat.cell.cell_key == cell.cell_key)
        for attempt in attempts_left(self._work.plan, cell, self._tally):
            self._store_untried(attempt, failure)
        self._refill_all()

    def _store_untried(self, attempt: Attempt, failure: Failure) -> None:
        device = attempt.repeat.cell.device
        facts = self._facts.get(device)
        origin = self._work.places[device].origin if facts is None else facts.origin
        measurement = failed(task_id_of(self._work, attempt), failure, origin)
        self._store(device, attempt, measurement, will_retry=False)

    def _store(
        self, device: str, attempt: Attempt, measurement: Measurement, *, will_retry: bool
    ) -> None:
        facts = self._facts.get(device)
        will_retry = will_retry and not self._state.is_stopping
        self._recorder.store(device, attempt, measurement, facts, will_retry=will_retry)

    def _keep_up_when_quiet(self) -> None:
        """Waits with syncing and rewriting until no measurement runs on this host."""
        if not any(self._is_measuring_here(lane) for lane in self._state.lanes.values()):
            self._ports.executor.acknowledge(self._recorder.keep_up())

    def _is_measuring_here(self, lane: Lane) -> bool:
        is_quiet = lane.needs_quiet and lane.running is not None
        return is_quiet and self._work.places[lane.device].is_here

    def _notice(self, level: str, message: str) -> None:
        self._emit(Notice(level=level, message=message))

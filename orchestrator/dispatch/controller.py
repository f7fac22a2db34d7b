"""The loop that obeys: polls, stores, asks the pure functions what is next, acts, tells."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from time import perf_counter

from device_agents.types import DeviceFacts, Failure, Measurement
from device_agents.vocabulary import Origin
from orchestrator.cells import Cell
from orchestrator.dispatch import retry
from orchestrator.dispatch.assign import next_assignments
from orchestrator.dispatch.executor import Executor
from orchestrator.dispatch.probes import Probes
from orchestrator.dispatch.row_sink import RowSink
from orchestrator.dispatch.state import (
    Attempt,
    DispatchState,
    Lane,
    next_moment_s,
    started,
    stopping,
    with_lane,
    without_cell,
)
from orchestrator.dispatch.stop_switch import STOPPING, StopSwitch
from orchestrator.dispatch.tally import Tally
from orchestrator.dispatch.work import (
    SweepWork,
    attempts_left,
    canary_of,
    device_attempts,
    failed_attempts,
    task_id_of,
    task_of,
)
from orchestrator.errors import StoreError
from orchestrator.progress.events import Notice, RepeatFinished, RepeatStarted, Subscriber
from orchestrator.translate import failure_measurement, make_row

_log = logging.getLogger(__name__)

_POLL_S = 0.25
"""Longest sleep between two looks at the stop switch; Ctrl-C feels immediate below it."""
_GRACE_S = 15.0
"""After 'stop now' workers get this long to come back before the sweep ends without them."""
_PUBLISH_S = 60.0
"""Readers of Parquet see rows at most this late; rewriting a part takes well under a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What the controller acts through.

    Attributes:
        emit: takes progress events.
        clock: seconds of a monotonic clock.
    """

    executor: Executor
    sink: RowSink
    emit: Subscriber
    switch: StopSwitch
    clock: Callable[[], float] = perf_counter


class Controller:
    """Runs one sweep to its end; every decision is made elsewhere."""

    def __init__(self, work: SweepWork, tally: Tally, ports: Ports) -> None:
        self._work = work
        self._tally = tally
        self._ports = ports
        self._rules = retry.RetryRules(max_attempts=work.plan.max_attempts)
        # Back-off needs no secrecy, and a seed makes a test repeatable.
        self._random = Random(work.plan.seed)  # noqa: S311
        self._store_error: StoreError | None = None
        self._published_s = ports.clock()
        self._interrupted_s: float | None = None
        self._facts = dict(ports.executor.facts())
        self._probes = Probes(ports.executor.probe)
        self._queues = self._make_queues()
        lanes = tuple(self._new_lane(device) for device in self._queues)
        self._state = DispatchState(lanes=lanes)

    def run(self) -> None:
        """Measures until nothing is left or somebody asks to stop; rows go to the sink.

        Raises:
            StoreError: the results cannot be written; everything stored before is kept, and what
                was running when it happened has been waited for and tried once more.
        """
        for attempt, failure in failed_attempts(self._work.plan, self._work.failures, self._tally):
            self._store_untried(attempt, failure)
        self._refill()
        while not self._is_over():
            self._obey_switch()
            self._probe()
            self._assign()
            self._collect()
            self._publish_when_quiet()
        self._write(self._ports.sink.flush)
        if self._store_error is not None:
            raise self._store_error

    def _make_queues(self) -> dict[str, Iterator[Attempt]]:
        plan = self._work.plan
        cells = tuple(cell for cell in plan.cells if cell.export in self._work.artifacts)
        plan = replace(plan, cells=cells)
        devices = dict.fromkeys(cell.device for cell in cells)
        return {device: device_attempts(plan, device, self._tally) for device in devices}

    def _new_lane(self, device: str) -> Lane:
        place = self._work.places[device]
        return Lane(
            device=device,
            host=place.host,
            needs_quiet=place.needs_quiet,
            # A device that did not answer at the start is asked again, as one set aside is.
            probe_at_s=None if device in self._facts else self._ports.clock(),
        )

    def _is_over(self) -> bool:
        if self._state.is_over:
            return True
        since_s = self._interrupted_s
        return since_s is not None and self._ports.clock() - since_s > _GRACE_S

    def _obey_switch(self) -> None:
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
        for lane in self._state.lanes:
            if lane.probe_at_s is not None and lane.probe_at_s <= now_s:
                self._probes.start(lane.device)
        for device, answer in self._probes.answers():
            self._take_answer(device, answer)

    def _take_answer(self, device: str, answer: DeviceFacts | Failure) -> None:
        self._state = retry.probed(
            self._state,
            device,
            is_well=isinstance(answer, DeviceFacts),
            rules=self._rules,
            now_s=self._ports.clock(),
        )
        if isinstance(answer, DeviceFacts):
            self._facts[device] = answer
            self._notice("info", f"{device} answers again")
        elif self._state.lane(device).is_given_up:
            self._notice(
                "warning",
                f"{device} is given up: {answer.message}; "
                "`fleetrank sweep resume` measures what is left",
            )

    def _assign(self) -> None:
        for assignment in next_assignments(self._state, self._ports.clock()):
            device, attempt = assignment.device, assignment.attempt
            self._state = started(self._state, device, attempt)
            self._refill()
            canary = canary_of(self._work, self._state.lane(device))
            self._ports.executor.submit(device, task_of(self._work, attempt, canary))
            self._ports.emit(
                RepeatStarted(
                    device=device,
                    label=attempt.repeat.cell.label,
                    repeat=attempt.repeat.index,
                    attempt=attempt.number,
                )
            )

    def _refill(self) -> None:
        """Puts the next attempt of the plan into every lane that has none."""
        for lane in self._state.lanes:
            if lane.fresh is None:
                filled = replace(lane, fresh=next(self._queues[lane.device], None))
                self._state = with_lane(self._state, filled)

    def _collect(self) -> None:
        now_s = self._ports.clock()
        next_s = next_moment_s(self._state.lanes, now_s)
        wait_s = _POLL_S if next_s is None else min(_POLL_S, next_s - now_s)
        for measurement in self._ports.executor.poll(wait_s):
            self._finish(measurement)

    def _finish(self, measurement: Measurement) -> None:
        attempt = self._running(measurement.task_id)
        if attempt is None:
            _log.warning("a measurement nobody waits for: %s", measurement.task_id)
            return
        device = attempt.repeat.cell.device
        self._state, will_retry = retry.finished(
            self._state,
            device,
            measurement.failure,
            rules=self._rules,
            now_s=self._ports.clock(),
            jitter=self._random.random(),
        )
        self._store(attempt, measurement, will_retry=will_retry)
        self._pass_over(attempt.repeat.cell)
        if self._state.lane(device).probe_at_s is not None:
            self._notice("warning", f"{device} failed repeatedly and is set aside until it answers")

    def _pass_over(self, cell: Cell) -> None:
        """Ends what is left of a cell when one of its repeats has failed for all."""
        failure = self._tally.verdict(cell.cell_key)
        if failure is None:
            return
        self._state = without_cell(self._state, cell.device, cell.cell_key)
        for attempt in attempts_left(self._work.plan, cell, self._tally):
            self._store_untried(attempt, failure)
        self._refill()

    def _running(self, task_id: str) -> Attempt | None:
        running = (lane.running for lane in self._state.lanes)
        return next(
            (
                attempt
                for attempt in running
                if attempt is not None and task_id_of(self._work, attempt) == task_id
            ),
            None,
        )

    def _store_untried(self, attempt: Attempt, failure: Failure) -> None:
        task_id = task_id_of(self._work, attempt)
        measurement = failure_measurement(task_id, failure, self._origin(attempt))
        self._store(attempt, measurement, will_retry=False)

    def _store(self, attempt: Attempt, measurement: Measurement, *, will_retry: bool) -> None:
        cell = attempt.repeat.cell
        if cell.device not in self._facts:
            # Whoever failed on the way to it does not know either.
            measurement = replace(measurement, origin=self._origin(attempt))
        row = make_row(
            sweep=self._work.sweep,
            repeat=attempt.repeat,
            attempt=attempt.number,
            measurement=measurement,
            facts=self._facts.get(cell.device),
            artifact=self._work.artifacts.get(cell.export),
        )
        self._write(lambda: self._ports.sink.append(row))
        self._tally.observe(row)
        failure = measurement.failure
        latency = row["latency_p50_ns"]
        self._ports.emit(
            RepeatFinished(
                device=cell.device,
                label=cell.label,
                repeat=attempt.repeat.index,
                attempt=attempt.number,
                latency_p50_ns=latency if isinstance(latency, float) else None,
                flags=tuple(flag.value for flag in measurement.flags),
                error=None if failure is None else failure.message,
                will_retry=will_retry and not self._state.is_stopping,
            )
        )

    def _write(self, action: Callable[[], None]) -> None:
        """A disk that cannot be written ends the sweep, but not before what runs has finished."""
        try:
            action()
        except StoreError as error:
            if self._store_error is None:
                self._notice("warning", f"{error.message}; stopping when what runs has finished")
            self._store_error = error
            self._state = stopping(self._state)

    def _publish_when_quiet(self) -> None:
        """Syncing and rewriting would disturb a measurement on this host."""
        if any(lane.running is not None and lane.needs_quiet for lane in self._state.lanes):
            return
        self._write(self._ports.sink.flush)
        if self._ports.clock() - self._published_s >= _PUBLISH_S:
            self._write(self._ports.sink.publish)
            self._published_s = self._ports.clock()

    def _origin(self, attempt: Attempt) -> Origin:
        device = attempt.repeat.cell.device
        facts = self._facts.get(device)
        return self._work.places[device].origin if facts is None else facts.origin

    def _notice(self, level: str, message: str) -> None:
        self._ports.emit(Notice(level=level, message=message))

"""The control loop: it feeds events to `step`, carries out the actions, and decides nothing.

Its `Recorder` turns attempts into rows and stores them.
"""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, Protocol

from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed
from fleetrank.device_agents.hosts.reach import in_thread
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.dispatch.decide import messages
from fleetrank.orchestrator.dispatch.decide.lane import key_of
from fleetrank.orchestrator.dispatch.decide.messages import Action, Event, Store, StoreUntried
from fleetrank.orchestrator.dispatch.decide.state import new_state
from fleetrank.orchestrator.dispatch.decide.step import step
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.dispatch.decide.work import SweepWork, task_id_of
from fleetrank.orchestrator.dispatch.hosts import Hosts
from fleetrank.orchestrator.dispatch.stop_switch import StopSwitch
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.progress import Subscriber
from fleetrank.orchestrator.progress_events import RepeatFinished
from fleetrank.orchestrator.row_making import RowMaker
from fleetrank.orchestrator.rows import Row

_log = logging.getLogger(__name__)


class RowSink(Protocol):
    """Where rows become durable."""

    def append(self, row: Row, measurement: Measurement) -> None:
        """Stores a row; afterwards it is safe from a crash of this process.

        `measurement` is what the row was made from; a sink of profiles or sets stores more of it.

        Raises:
            StoreError: the disk is full; the row stays in memory and is written later.
        """
        ...

    def flush(self) -> None:
        """Makes every stored row safe from a power cut; raises the errors of `append`."""
        ...

    def publish(self) -> None:
        """Publishes the rows to readers; raises the errors of `append`."""
        ...


class Recorder:
    """Makes rows of attempts, stores them in its `RowSink`, and reports their end to the user."""

    def __init__(self, work: SweepWork, sink: RowSink, emit: Subscriber) -> None:
        """`emit` takes the progress events."""
        self._work = work
        self._rows = RowMaker(work.sweep, work.plan.cells, work.places, work.exports.artifacts)
        self.sink = sink
        self.emit = emit

    def store(self, done: Store | StoreUntried) -> Failure | None:
        """Stores one attempt and reports its end, also if the row could not be written.

        Returns:
            Why the attempt failed after all: no row could be made of what the device returned.
        """
        if isinstance(done, StoreUntried):
            done = self._as_stored(done)
        refusal = None
        try:
            row = self._row_of(done)
        except Exception as error:
            # One device's answer must not end the sweep of all others.
            _log.warning("no row of %s", done.measurement.task_id, exc_info=error)
            refusal = _bad_output(error)
            origin, task_id = done.measurement.origin, done.measurement.task_id
            done = replace(done, measurement=failed(task_id, refusal, origin), facts=None)
            row = self._row_of(done)
        self._append(done, row)
        return refusal

    def _row_of(self, done: Store) -> Row:
        return self._rows.row(done.attempt, done.measurement, done.device, done.facts)

    def _append(self, done: Store, row: Row) -> None:
        measurement = done.measurement
        latency, failure = row["latency_p50_ns"], measurement.failure
        named = messages.of_repeat(self._work, done.device, done.attempt)
        ended = RepeatFinished(
            **(named | {"origin": measurement.origin}),
            latency_p50_ns=latency if isinstance(latency, float) else None,
            flags=tuple(flag.value for flag in measurement.flags),
            error=None if failure is None else failure.message,
            will_retry=done.will_retry,
            has_no_file=failure is not None
            and done.attempt.repeat.cell.export in self._work.exports.failures,
        )
        try:
            self.sink.append(row, measurement)
        finally:
            self.emit(ended)

    def _as_stored(self, untried: StoreUntried) -> Store:
        device, facts = untried.attempt.repeat.cell.device, untried.facts
        origin = self._work.places[device].origin if facts is None else facts.origin
        measurement = failed(task_id_of(self._work, untried.attempt), untried.failure, origin)
        return Store(
            device=device,
            attempt=untried.attempt,
            measurement=measurement,
            facts=facts,
            will_retry=False,
        )


def _bad_output(error: Exception) -> Failure:
    return Failure(
        kind=ErrorKind.BAD_OUTPUT,
        message=f"no row can be made of what the device returned: {error}",
        remedy="report this with what the command prints with `debug=true`",
        is_transient=False,
    )


class Controller:
    """Runs one sweep to its end."""

    def __init__(
        self,
        work: SweepWork,
        tally: Tally,
        *,
        hosts: Hosts,
        recorder: Recorder,
        switch: StopSwitch,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`tally` is updated in place; `clock` gives seconds of a monotonic clock."""
        self._hosts = hosts
        self._recorder = recorder
        self._switch = switch
        self._clock = clock
        self._asked: list[tuple[messages.Probe | messages.CyclePower, Future[Any]]] = []
        self._state = new_state(work, tally, hosts.facts(), clock())
        self._error: StoreError | None = None

    def run(self) -> None:
        """Measures until no attempt is left or a stop is requested.

        Raises:
            StoreError: the results cannot be written. All rows stored before are kept. Running
                attempts were waited for, and their rows were tried once more.
        """
        in_flight, offered = self._hosts.in_flight(), self._hosts.poll(0.0)
        self._handle(messages.Began(now_s=self._clock(), in_flight=in_flight, offered=offered))
        while not self._state.is_over:
            if self._switch.is_stopping:
                is_now = self._switch.is_now
                self._handle(messages.StopPressed(now_s=self._clock(), is_now=is_now))
            for event in self._answers():
                self._handle(event)
            for host in self._hosts.joined():
                self._handle(messages.HostJoined(now_s=self._clock(), host=host))
            self._handle(messages.Tick(now_s=self._clock()))
            arrived = self._hosts.poll(self._state.wait_s(self._clock()))
            self._handle(messages.Arrived(now_s=self._clock(), measurements=arrived))
        self._handle(messages.Ended(now_s=self._clock()))
        if self._error is not None:
            raise self._error

    def _answers(self) -> Iterator[Event]:
        """What devices have answered that were asked in a thread."""
        for asked in [one for one in self._asked if one[1].done()]:
            self._asked.remove(asked)
            (action, end), now_s = asked, self._clock()
            if isinstance(action, messages.CyclePower):
                yield messages.Switched(now_s=now_s, device=action.device, error=end.result())
                continue
            if (error := end.exception()) is None:
                answer = end.result()
            else:
                answer = Failure(
                    kind=ErrorKind.INTERNAL,
                    message=f"{type(error).__name__}: {error}",
                    remedy="run with `inline=true` and `debug=true` to see where",
                    is_transient=True,
                )
            yield messages.Probed(now_s=now_s, device=action.device, answer=answer)

    def _handle(self, event: Event) -> None:
        for action in step(self._state, event):
            try:
                self._carry_out(action)
            except StoreError as error:
                self._error = error
                self._handle(messages.StoreFailed(now_s=self._clock(), message=error.message))

    def _carry_out(self, action: Action) -> None:
        match action:
            case messages.Submit():
                self._hosts.submit(action.device, action.task)
            case messages.Store() | messages.StoreUntried():
                self._store(action)
            case messages.Announce():
                self._recorder.emit(action.event)
            case messages.Probe() | messages.CyclePower():
                is_probe = isinstance(action, messages.Probe)
                ask = self._hosts.probe if is_probe else self._hosts.cycle_power
                # In a thread: a phone that hangs takes half a minute to answer.
                self._asked.append((action, in_thread(partial(ask, action.device))))
            case messages.Sync():
                self._recorder.sink.flush()
                self._handle(messages.Synced(now_s=self._clock()))
            case messages.Publish():
                self._recorder.sink.publish()
            case messages.Acknowledge():
                self._hosts.acknowledge(action.task_ids)
            case messages.FinishRounds():
                self._hosts.finish_rounds()
            case messages.Interrupt():
                self._hosts.interrupt()

    def _store(self, done: messages.Store | messages.StoreUntried) -> None:
        refusal = self._recorder.store(done)
        if refusal is not None:
            self._state.tally.withdraw(key_of(done.attempt), refusal)

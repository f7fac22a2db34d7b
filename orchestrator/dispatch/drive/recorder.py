"""Turns attempts into rows, stores them, and reports their end to the user."""

from typing import Protocol

from fleetrank.device_agents.contract.measurement import Measurement, failed
from fleetrank.orchestrator.dispatch.decide.messages import Store, StoreUntried
from fleetrank.orchestrator.dispatch.decide.work import SweepWork, task_id_of
from fleetrank.orchestrator.progress.events import Event, RepeatFinished, Subscriber
from fleetrank.orchestrator.rows.measured_columns import Row
from fleetrank.orchestrator.rows.translate import make_row


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
    """Keeps the rows of one sweep; raises the errors of its `RowSink`."""

    def __init__(self, work: SweepWork, sink: RowSink, emit: Subscriber) -> None:
        """`emit` takes the progress events."""
        self._work = work
        self._sink = sink
        self._emit = emit

    def announce(self, event: Event) -> None:
        """Reports progress to the user."""
        self._emit(event)

    def sync(self) -> None:
        """Makes every stored row safe from a power cut."""
        self._sink.flush()

    def publish(self) -> None:
        """Publishes the rows to readers."""
        self._sink.publish()

    def store(self, done: Store | StoreUntried) -> None:
        """Stores one attempt and reports its end, also if the row could not be written."""
        if isinstance(done, StoreUntried):
            done = self._as_stored(done)
        attempt, measurement, cell = done.attempt, done.measurement, done.attempt.repeat.cell
        place = self._work.places[done.device]
        row = make_row(
            sweep=self._work.sweep,
            attempt=attempt,
            measurement=measurement,
            place=place,
            facts=done.facts,
            artifact=self._work.artifacts.get(cell.export),
        )
        latency, failure = row["latency_p50_ns"], measurement.failure
        ended = RepeatFinished(
            device=done.device,
            host=place.host,
            label=cell.label,
            repeat=attempt.repeat.index,
            attempt=attempt.number,
            latency_p50_ns=latency if isinstance(latency, float) else None,
            flags=tuple(flag.value for flag in measurement.flags),
            error=None if failure is None else failure.message,
            will_retry=done.will_retry,
            has_no_file=cell.export in self._work.failures,
            origin=measurement.origin,
        )
        try:
            self._sink.append(row, measurement)
        finally:
            self._emit(ended)

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

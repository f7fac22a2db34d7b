"""Turns measurements into rows, stores them, emits events, and returns which rows are safe."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from fleetrank.device_agents.contract.device_facts import DeviceFacts
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.dispatch.decide.work import SweepWork
from fleetrank.orchestrator.dispatch.drive.row_sink import RowSink
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.identity.cells import Attempt
from fleetrank.orchestrator.progress.events import Notice, RepeatFinished, Subscriber
from fleetrank.orchestrator.rows.translate import make_row

_FLUSH_S = 0.2
"""Rows of this period share one sync; until then a host keeps its measurements anyway."""
_PUBLISH_S = 60.0
"""Parquet readers see a row after at most this time; writing a part takes under a second."""


class Recorder:
    """Keeps the rows of one sweep."""

    def __init__(
        self,
        work: SweepWork,
        tally: Tally,
        sink: RowSink,
        emit: Subscriber,
        clock: Callable[[], float],
    ) -> None:
        """`clock` gives seconds of a monotonic clock."""
        self._work = work
        self._tally = tally
        self._sink = sink
        self._emit = emit
        self._clock = clock
        self._flushed_s = self._published_s = clock()
        self._taken: list[str] = []
        self.error: StoreError | None = None
        """The error if the disk could not be written; then no new attempt may start."""

    def take(self, task_id: str) -> None:
        """Notes an arrived measurement; after the next `flush` it is stored or discarded."""
        self._taken.append(task_id)

    def store(
        self,
        device: str,
        attempt: Attempt,
        measurement: Measurement,
        facts: DeviceFacts | None,
        *,
        will_retry: bool,
    ) -> None:
        """Stores one attempt, emits its event; `facts` is `None` if no probe was answered."""
        if facts is None:
            # A failure before the device was reached has no origin either.
            measurement = replace(measurement, origin=self._work.places[device].origin)
        cell = attempt.repeat.cell
        row = make_row(
            sweep=self._work.sweep,
            attempt=attempt,
            measurement=measurement,
            place=self._work.places[device],
            facts=facts,
            artifact=self._work.artifacts.get(cell.export),
        )
        self._write(lambda: self._sink.append(row))
        self._tally.observe(row)
        failure = measurement.failure
        latency = row["latency_p50_ns"]
        self._emit(
            RepeatFinished(
                device=device,
                host=self._work.places[device].host,
                label=cell.label,
                repeat=attempt.repeat.index,
                attempt=attempt.number,
                latency_p50_ns=latency if isinstance(latency, float) else None,
                flags=tuple(flag.value for flag in measurement.flags),
                error=None if failure is None else failure.message,
                will_retry=will_retry,
                origin=measurement.origin,
            )
        )

    def flush(self) -> Sequence[str]:
        """Syncs every row; returns the task ids that their hosts may now delete."""
        self._write(self._sink.flush)
        self._flushed_s = self._clock()
        if self.error is not None:
            return ()
        taken, self._taken = self._taken, []
        return taken

    def keep_up(self) -> Sequence[str]:
        """Runs what is due while nothing is measured: `flush`, and from time to time publishing."""
        if self._clock() - self._flushed_s < _FLUSH_S:
            return ()
        taken = self.flush()
        if self._clock() - self._published_s >= _PUBLISH_S:
            self._write(self._sink.publish)
            self._published_s = self._clock()
        return taken

    def _write(self, action: Callable[[], None]) -> None:
        """Writes; if the disk cannot be written, the sweep ends after the running attempts."""
        try:
            action()
        except StoreError as error:
            if self.error is None:
                message = f"{error.message}; the sweep stops when the running repeats have finished"
                self._emit(Notice(level="warning", message=message))
            self.error = error

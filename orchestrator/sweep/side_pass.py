"""What a sweep measures after its latencies, in processes of their own, and stores apart."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.dispatch.decide.work import SweepWork, attempts_left
from fleetrank.orchestrator.dispatch.drive.controller import Controller
from fleetrank.orchestrator.dispatch.drive.executor import Executor
from fleetrank.orchestrator.dispatch.drive.recorder import Recorder
from fleetrank.orchestrator.dispatch.drive.stop_switch import StopSwitch
from fleetrank.orchestrator.identity.cells import Cell, Plan
from fleetrank.orchestrator.progress.events import (
    Event,
    Notice,
    RepeatFinished,
    RepeatStarted,
    Subscriber,
)

if TYPE_CHECKING:
    from fleetrank.orchestrator.store.side_sink import SideForm


@dataclass(frozen=True, slots=True, kw_only=True)
class SideWork:
    """What one side pass measures.

    Attributes:
        noun: one of its attempts, for messages.
        plan: its cells; each key is that of a task of the pass. Nothing takes turns.
        form: how its attempts are stored. It is a function, because importing Polars takes 0.2 s
            and most sweeps have no side pass.
        is_profiled: its tasks profile.
    """

    noun: str
    plan: Plan
    form: "Callable[[], SideForm]"
    is_profiled: bool = False


class SidePass:
    """A side pass of one run of a sweep."""

    def __init__(self, results: Path, sweep_id: str, side: SideWork) -> None:
        """Reads which attempts an earlier run stored.

        Raises:
            DamagedPartError: a stored file is damaged.
        """
        self._results = results
        self._sweep_id = sweep_id
        self._side = side
        self._tally = Tally()
        if side.plan.cells:
            from fleetrank.orchestrator.store.side_sink import stored_attempts

            self._tally = Tally.of(stored_attempts(results, sweep_id, side.form()))

    def open_cells(self) -> list[Cell]:
        """Cells with pending attempts."""
        return [cell for cell in self._side.plan.cells if self._is_open(cell)]

    @property
    def n_failed(self) -> int:
        """Repeats of the pass that failed for good."""
        return self._tally.n_failed

    def reopen(self) -> int:
        """Lets the failed repeats be tried again; returns how many."""
        return self._tally.reopen([cell.cell_key for cell in self._side.plan.cells])

    def _is_open(self, cell: Cell) -> bool:
        return any(True for _ in attempts_left(self._side.plan, cell, self._tally))

    def run(
        self, work: SweepWork, executor: Executor, emit: Subscriber, switch: StopSwitch
    ) -> None:
        """Measures until nothing is left or a stop is requested; raises as `Controller.run`."""
        from fleetrank.orchestrator.store.side_sink import SideSink

        side = self._side
        for skipped in side.plan.skipped:
            emit(Notice(level="info", message=f"no {skipped.label}: {skipped.reason}"))
        if switch.is_stopping or not self.open_cells():
            return
        work = replace(
            work,
            plan=side.plan,
            primers={} if side.is_profiled else work.primers,
            canaries={},
            is_profiled=side.is_profiled,
        )
        say = _Said(emit, side, self._tally.n_finished)
        sink = SideSink(self._results, self._sweep_id, side.form())
        recorder = Recorder(work, sink, say)
        Controller(work, self._tally, executor=executor, recorder=recorder, switch=switch).run()
        sink.flush()


class _Said:
    """Reports finished attempts as notices: they are not repeats of the sweep."""

    def __init__(self, emit: Subscriber, side: SideWork, n_done: int) -> None:
        self._emit, self._side, self._n_done = emit, side, n_done

    def __call__(self, event: Event) -> None:
        if isinstance(event, RepeatStarted):
            return
        if not isinstance(event, RepeatFinished):
            self._emit(event)
            return
        self._n_done += not event.will_retry
        count = f"[{self._side.noun} {self._n_done}/{self._side.plan.n_repeats}]"
        what = f"{count} {event.label} #{event.repeat + 1}"
        if event.error is None:
            self._emit(Notice(level="info", message=what))
        else:
            self._emit(Notice(level="warning", message=f"{what} failed: {event.error}"))

"""What a sweep measures after its latencies, in processes of their own, and stores apart.

Profiles say where the time of a cell goes; sets are a cell in several processes at the same time.
"""

from dataclasses import replace

from fleetrank.orchestrator.dispatch.controller import Controller, Recorder
from fleetrank.orchestrator.dispatch.decide.looks import Looks
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.dispatch.decide.work import SweepWork, attempts_left
from fleetrank.orchestrator.dispatch.hosts import Hosts
from fleetrank.orchestrator.dispatch.stop_switch import StopSwitch
from fleetrank.orchestrator.identity import Cell, Plan
from fleetrank.orchestrator.progress import Subscriber
from fleetrank.orchestrator.progress_events import Event, Notice, RepeatFinished, RepeatStarted
from fleetrank.orchestrator.store.journal import Journal
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.side import PROFILE_FORM, JournalSink, SideForm, stored_attempts


def open_cells(plan: Plan, tally: Tally, spent_s: float = 0.0) -> list[Cell]:
    """Cells with pending attempts.

    Until decided, also those of the next round, if earlier runs `spent_s` less than the budget.
    """
    pending = [cell for cell in plan.cells if any(attempts_left(plan, cell, tally))]
    if plan.until is None or pending:
        return pending
    looks = Looks(plan.until, tally, now_s=0.0, spent_s=spent_s)
    for device in dict.fromkeys(cell.device for cell in plan.cells):
        cells = [cell for cell in plan.cells if cell.device == device]
        for index in range(plan.least_repeats, plan.repeats):
            chosen = looks.cells_of_round(cells, index)
            left = [one for one in chosen if not tally.is_finished((one.cell_key, index))]
            pending += left
            if left or not chosen:
                break
    return pending


class SidePass:
    """A side pass of one run of a sweep."""

    def __init__(self, store: ResultStore, sweep_id: str, form: SideForm, plan: Plan) -> None:
        """Reads which attempts an earlier run stored.

        Raises:
            StoreError: the journal cannot be read.
        """
        self._store = store
        self._form, self._plan = form, plan
        self._tally = Tally()
        if plan.cells:
            self._tally = Tally.of(stored_attempts(store.open_journal(sweep_id), form))

    def open_cells(self) -> list[Cell]:
        """Cells with pending attempts."""
        return open_cells(self._plan, self._tally)

    @property
    def n_failed(self) -> int:
        """Repeats of the pass that failed for good."""
        return self._tally.n_failed

    def reopen(self) -> int:
        """Lets the failed repeats be tried again; returns how many."""
        return self._tally.reopen([cell.cell_key for cell in self._plan.cells])

    def run(
        self,
        work: SweepWork,
        journal: Journal,
        hosts: Hosts,
        emit: Subscriber,
        switch: StopSwitch,
    ) -> None:
        """Measures until nothing is left or a stop is requested; raises as `Controller.run`."""
        form = self._form
        for skipped in self._plan.skipped:
            emit(Notice(level="info", message=f"no {skipped.label}: {skipped.reason}"))
        if switch.is_stopping or not self.open_cells():
            return
        # The power is switched for latencies only, so that there is one count for the sweep.
        places = {name: replace(one, has_power=False) for name, one in work.places.items()}
        work = replace(work, plan=self._plan, canaries={}, places=places)
        if form is PROFILE_FORM:
            exports = replace(work.exports, primers={})
            work = replace(work, exports=exports)
        say = _Said(emit, form.noun, self._plan.n_repeats, self._tally.n_finished)
        sink = JournalSink(self._store, journal, form)
        recorder = Recorder(work, sink, say)
        Controller(work, self._tally, hosts=hosts, recorder=recorder, switch=switch).run()
        sink.flush()


class _Said:
    """Reports finished attempts as notices: they are not repeats of the sweep."""

    def __init__(self, emit: Subscriber, noun: str, n_repeats: int, n_done: int) -> None:
        self._emit, self._noun, self._n_repeats, self._n_done = emit, noun, n_repeats, n_done

    def __call__(self, event: Event) -> None:
        if isinstance(event, RepeatStarted):
            return
        if not isinstance(event, RepeatFinished):
            self._emit(event)
            return
        self._n_done += not event.will_retry
        count = f"[{self._noun} {self._n_done}/{self._n_repeats}]"
        what = f"{count} {event.label} #{event.repeat + 1}"
        if event.error is None:
            self._emit(Notice(level="info", message=what))
        else:
            self._emit(Notice(level="warning", message=f"{what} failed: {event.error}"))

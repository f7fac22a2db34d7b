"""One run of one sweep, new or resumed."""

import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import perf_counter

from fleetrank.analysis.stored.sweep_record import SweepState, stamp_now
from fleetrank.device_agents.registry import HOST_CPU, create_agent
from fleetrank.foundation.lease import host_lease
from fleetrank.foundation.vocabulary import Origin
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.networks.primer import canary_request
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.dispatch.decide.work import SweepWork
from fleetrank.orchestrator.dispatch.drive.controller import Controller
from fleetrank.orchestrator.dispatch.drive.recorder import Recorder
from fleetrank.orchestrator.dispatch.drive.stop_switch import StopSwitch, listening
from fleetrank.orchestrator.errors import NothingToDoError, OrchestratorError, StoreError
from fleetrank.orchestrator.export.export_stage import Exports, ExportTools, build_artifacts
from fleetrank.orchestrator.identity.cells import Cell, Plan
from fleetrank.orchestrator.plan.estimate import measuring_s
from fleetrank.orchestrator.progress.events import (
    Notice,
    Publisher,
    Subscriber,
    SweepFinished,
    SweepStarted,
)
from fleetrank.orchestrator.progress.progress_file import ProgressFile
from fleetrank.orchestrator.store.journal_sink import JournalSink
from fleetrank.orchestrator.store.journals.journal import Journal
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.sweep.dispatch_backend import DispatchBackend
from fleetrank.orchestrator.sweep.sweep_setup import Setup, primed_formats
from fleetrank.orchestrator.workspace.provenance import sweep_facts
from fleetrank.orchestrator.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run a sweep; these options do not change the results.

    Attributes:
        is_inline: agents run in this process instead of through Ray.
        cluster: address of the Ray cluster to run on; `None` starts a Ray on this host.
        is_trusted: the user allows model-supplied code to run.
        subscribers: receive the events.
    """

    is_inline: bool = False
    cluster: str | None = None
    is_trusted: bool = False
    subscribers: Sequence[Subscriber] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOutcome:
    """The progress of a sweep, including its earlier runs.

    Attributes:
        is_unreal: every device is simulated or virtual.
    """

    sweep_id: str
    n_ok: int
    n_failed: int
    n_left: int
    is_interrupted: bool
    is_unreal: bool


class SweepSession:
    """One run of one sweep."""

    def __init__(
        self,
        workspace: Workspace,
        store: ResultStore,
        sweep_id: str,
        setup: Setup,
        options: RunOptions,
        backend: DispatchBackend,
    ) -> None:
        self._workspace = workspace
        self._store = store
        self._sweep_id = sweep_id
        self._setup = setup
        self._options = options
        self._backend = backend
        progress = ProgressFile(store.progress_path(sweep_id))
        self._emit = Publisher([*options.subscribers, progress])
        self._switch = StopSwitch()

    def run(self) -> SweepOutcome:
        """Holds the sweep's lease, runs, and always leaves a correct record."""
        started_s = perf_counter()
        with (
            self._store.lease(self._sweep_id),
            self._store.open_journal(self._sweep_id) as journal,
        ):
            tally = Tally.of(journal.rows())
            self._store.update_record(
                self._sweep_id,
                {
                    "state": SweepState.RUNNING,
                    "run_started_utc": stamp_now(),
                    "finished_utc": None,
                },
            )
            self._announce(tally)
            try:
                if tally.n_finished < self._setup.plan.n_repeats:
                    self._measure(journal, tally)
                with self._host_turn(f"sweep {self._sweep_id}, which writes its results"):
                    journal.check_place()
                    self._store.publish(self._sweep_id)
            except BaseException as error:
                # Ctrl-C while Ray starts or ends, when our handlers are not active.
                is_interrupt = isinstance(error, KeyboardInterrupt)
                self._close_record(
                    SweepState.INTERRUPTED if is_interrupt else SweepState.FAILED, tally
                )
                raise
            outcome = self._outcome(tally)
            self._close_record(_state_of(outcome), tally)
            if not outcome.n_left:
                journal.close()
                self._pack_journal()
        self._emit(
            SweepFinished(
                sweep_id=self._sweep_id,
                n_ok=outcome.n_ok,
                n_failed=outcome.n_failed,
                n_left=outcome.n_left,
                seconds=perf_counter() - started_s,
                is_interrupted=outcome.is_interrupted,
                n_flagged=tally.n_flagged,
                flags=tally.flags,
            )
        )
        return outcome

    def _pack_journal(self) -> None:
        """Packs the journal; a failure wastes disk space but loses no row."""
        with self._host_turn(f"sweep {self._sweep_id}, which packs its journal"):
            try:
                self._store.pack_journal(self._sweep_id)
            except StoreError as error:
                self._emit(Notice(level="warning", message=f"{error.message} ({error.remedy})"))

    def _measure(self, journal: Journal, tally: Tally) -> None:
        journal.open()
        # Ray sets its own SIGTERM handler when it starts, so ours are set afterwards.
        with (
            self._backend.executor(self._sweep_id, self._setup) as executor,
            listening(self._switch),
        ):
            if not set(self._setup.devices) & set(executor.facts()):
                raise NothingToDoError(
                    f"no device answers: {', '.join(self._setup.devices)}",
                    "see `fleetrank doctor` and `fleetrank devices show NAME`",
                )
            exports = self._export(tally)
            journal.check_place()
            if not exports.is_complete:
                return
            sink = JournalSink(self._store, journal, self._sweep_id)
            work = self._work(exports)
            recorder = Recorder(work, sink, self._emit)
            Controller(work, tally, executor=executor, recorder=recorder, switch=self._switch).run()

    def _export(self, tally: Tally) -> Exports:
        tools = ExportTools(
            cache=ArtifactCache(self._workspace.artifacts),
            # On this host, because the files are exported here.
            infer=create_agent(HOST_CPU, {}).infer,
            emit=self._emit,
            switch=self._switch,
            is_trusted=self._options.is_trusted,
        )
        cells = _open_cells(self._setup.plan, tally)
        primed = primed_formats(self._setup, cells)
        requests = [cell.export for cell in cells]
        if self._setup.has_canaries:
            requests.append(canary_request())
        purpose = f"sweep {self._sweep_id}, which exports models"
        # If the wait was cancelled, the switch is set and nothing is exported.
        with self._host_turn(purpose):
            return build_artifacts(requests, primed, tools)

    def _host_turn(self, purpose: str) -> AbstractContextManager[bool]:
        """The host's lease, for work that this process does itself."""
        return host_lease(
            purpose,
            on_wait=lambda message: self._emit(Notice(level="info", message=message)),
            give_up=lambda: self._switch.is_stopping,
        )

    def _work(self, exports: Exports) -> SweepWork:
        return SweepWork(
            sweep=sweep_facts(self._sweep_id, self._setup.plan.seed, self._workspace.root),
            plan=self._setup.plan,
            places=self._setup.places,
            artifacts=exports.artifacts,
            failures=exports.failures,
            primers=exports.primers,
            canaries=self._setup.canaries(exports.artifacts.get(canary_request())),
            is_trusted=self._options.is_trusted,
        )

    def _announce(self, tally: Tally) -> None:
        plan = self._setup.plan
        n_repeats = plan.n_repeats
        whole_s = measuring_s(plan, self._store.history(), self._setup.places)
        share_left = 1 - tally.n_finished / n_repeats
        self._emit(
            SweepStarted(
                sweep_id=self._sweep_id,
                n_cells=len(plan.cells),
                n_repeats=n_repeats,
                n_done=tally.n_finished,
                n_skipped=len(plan.skipped),
                estimate_s=None if whole_s is None else whole_s * share_left,
            )
        )

    def _outcome(self, tally: Tally) -> SweepOutcome:
        n_repeats = self._setup.plan.n_repeats
        return SweepOutcome(
            sweep_id=self._sweep_id,
            n_ok=tally.n_ok,
            n_failed=tally.n_failed,
            n_left=self._n_left(tally),
            # A stop was requested after the last repeat had started, so nothing is missing.
            is_interrupted=self._switch.is_stopping and tally.n_finished < n_repeats,
            is_unreal=all(
                place.origin is not Origin.MEASURED for place in self._setup.places.values()
            ),
        )

    def _n_left(self, tally: Tally) -> int:
        # A journal that was edited by hand can hold repeats that the plan lacks.
        return max(0, self._setup.plan.n_repeats - tally.n_ok - tally.n_failed)

    def _close_record(self, state: SweepState, tally: Tally) -> None:
        """Writes the record; on failure the old one stays, with state `running` and no lease."""
        changes = {
            "state": state,
            "finished_utc": stamp_now(),
            "n_ok": tally.n_ok,
            "n_failed": tally.n_failed,
            "n_left": self._n_left(tally),
        }
        with contextlib.suppress(OrchestratorError):
            self._store.update_record(self._sweep_id, changes)


def _state_of(outcome: SweepOutcome) -> SweepState:
    """Whether pending repeats of a regular end belong to an abandoned device."""
    if outcome.is_interrupted:
        return SweepState.INTERRUPTED
    return SweepState.STOPPED if outcome.n_left else SweepState.FINISHED


def _open_cells(plan: Plan, tally: Tally) -> list[Cell]:
    """Cells with pending repeats; a failed export is retried."""
    return [
        cell
        for cell in plan.cells
        if not all(tally.is_finished((cell.cell_key, index)) for index in range(plan.repeats))
    ]

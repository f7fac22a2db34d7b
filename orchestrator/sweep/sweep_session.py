"""One run of one sweep, new or resumed."""

import contextlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from time import perf_counter

from fleetrank.analysis.stored.sweep_record import SweepState, SweepTags, stamp_now
from fleetrank.device_agents.contract.kind import Kind
from fleetrank.device_agents.registry import HOST_CPU, create_agent, load_kind
from fleetrank.foundation.errors import FleetError, raise_together
from fleetrank.foundation.lease import host_lease
from fleetrank.foundation.vocabulary import RUNTIME_OF_FORMAT, Origin, Runtime
from fleetrank.foundation.wording import count_of
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import ExportRequest, Source
from fleetrank.models.export.request import check_ready
from fleetrank.models.networks.primer import canary_request
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.dispatch.decide.work import SweepWork, attempts_left
from fleetrank.orchestrator.dispatch.drive.controller import Controller
from fleetrank.orchestrator.dispatch.drive.recorder import Recorder
from fleetrank.orchestrator.dispatch.drive.stop_switch import (
    StopSwitch,
    listening,
    sigterm_as_ctrl_c,
)
from fleetrank.orchestrator.errors import NothingToDoError, OrchestratorError, StoreError
from fleetrank.orchestrator.export.export_stage import Exports, build_artifacts
from fleetrank.orchestrator.export.one_export import ExportTools
from fleetrank.orchestrator.identity.cells import Cell, Plan
from fleetrank.orchestrator.identity.token_costs import without_file
from fleetrank.orchestrator.plan.estimate import measuring_s
from fleetrank.orchestrator.plan.plan import narrow
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
from fleetrank.orchestrator.sweep.profile_pass import profiles_of, store_costs
from fleetrank.orchestrator.sweep.replica_pass import sets_of
from fleetrank.orchestrator.sweep.side_pass import SidePass
from fleetrank.orchestrator.sweep.sweep_outcome import SweepOutcome
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
        retries_failed: repeats that failed for good in an earlier run are tried again.
        restricted_to: a pattern of the cells that this run measures; `None` measures all. Other
            pending repeats stay pending.
        tags: of a new sweep; `None` without any.
    """

    is_inline: bool = False
    cluster: str | None = None
    is_trusted: bool = False
    subscribers: Sequence[Subscriber] = ()
    retries_failed: bool = False
    restricted_to: str | None = None
    tags: SweepTags | None = None


def check_host(
    workspace: Workspace, setup: Setup, cells: Iterable[Cell], *, is_trusted: bool
) -> None:
    """Checks what this host needs in order to export and to measure cells; stores nothing.

    A file in the cache needs no export. What another host lacks becomes failed rows of that host.

    Args:
        workspace: with the cache.
        setup: of the cells.
        cells: the pending ones.
        is_trusted: the user allows model-supplied code to run.

    Raises:
        FleetError: trust, a size of a file or a library is missing; names all of them.
    """
    cells = tuple(cells)
    cache, unopened = ArtifactCache(workspace.artifacts), setup.costs_without_file(cells)
    requests = dict.fromkeys(cell.export for cell in cells if cell.export not in unopened)
    exports = [(one, _why_not_exported(one, is_trusted=is_trusted)) for one in requests]
    lacks = [why for one, why in exports if why is not None and cache.peek(one) is None]
    if not setup.fleet.is_cluster:
        kinds = {name: device.kind_of for name, device in setup.devices.items()}
        runs = dict.fromkeys((kinds[cell.device], cell.execution.runtime) for cell in cells)
        lacks += filter(None, (_why_not_run(kind, runtime) for kind, runtime in runs))
    raise_together(lacks)


def _why_not_exported(request: ExportRequest, *, is_trusted: bool) -> FleetError | None:
    """What this host lacks to write and verify a file; `None` if nothing is known to be missing."""
    try:
        check_ready(request, is_trusted=is_trusted)
    except FleetError as error:
        return error
    if request.card.source is Source.FILE:
        return None
    return _why_not_run(load_kind(HOST_CPU), Runtime(RUNTIME_OF_FORMAT[request.format]))


def _why_not_run(kind: Kind, runtime: Runtime) -> FleetError | None:
    """What this host lacks to run a runtime on a device of this kind."""
    if kind.check_library is None:
        return None
    try:
        kind.check_library(runtime)
    except FleetError as error:
        return error
    return None


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
        pattern = options.restricted_to
        self._plan_now = setup.plan if pattern is None else narrow(setup.plan, pattern)
        self._options = options
        self._backend = backend
        progress = ProgressFile(store.progress_path(sweep_id))
        self._emit = Publisher([*options.subscribers, progress])
        self._switch = StopSwitch()
        self._profiles, self._sets = (
            SidePass(store.root, sweep_id, side_of(setup, self._plan_now))
            for side_of in (profiles_of, sets_of)
        )

    def run(self) -> SweepOutcome:
        """Holds the sweep's lease, runs, and always leaves a correct record."""
        started_s = perf_counter()
        with (
            self._store.lease(self._sweep_id),
            self._store.open_journal(self._sweep_id) as journal,
            sigterm_as_ctrl_c(),
        ):
            tally = Tally.of(journal.rows())
            self._reopen(tally)
            pending = self._pending(tally)
            is_trusted = self._options.is_trusted
            check_host(self._workspace, self._setup, pending, is_trusted=is_trusted)
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
                if pending:
                    self._measure(journal, tally)
                with self._host_turn(f"sweep {self._sweep_id}, which writes its results"):
                    journal.check_place()
                    self._store.publish(self._sweep_id)
            except BaseException as error:
                # While Ray starts or ends, when the handlers of `listening` are not active.
                is_interrupt = isinstance(error, KeyboardInterrupt)
                self._close_record(
                    SweepState.INTERRUPTED if is_interrupt else SweepState.FAILED, tally
                )
                raise
            outcome = self._outcome(tally)
            self._close_record(outcome.state, tally)
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

    def _reopen(self, tally: Tally) -> None:
        if not self._options.retries_failed:
            return
        n_failed = tally.reopen([cell.cell_key for cell in self._plan_now.cells])
        n_failed += self._profiles.reopen() + self._sets.reopen()
        message = f"retrying {count_of(n_failed, 'failed repeat')}"
        self._emit(Notice(level="info", message=message if n_failed else "nothing has failed"))

    def _pack_journal(self) -> None:
        """Packs the journal; a failure wastes disk space but loses no row."""
        with self._host_turn(f"sweep {self._sweep_id}, which packs its journal"):
            try:
                self._store.pack_journal(self._sweep_id)
            except StoreError as error:
                self._emit(Notice(level="warning", message=f"{error.message} ({error.remedy})"))

    def _measure(self, journal: Journal, tally: Tally) -> None:
        journal.open()
        with (
            self._backend.executor(self._sweep_id, self._setup) as executor,
            listening(self._switch),
        ):
            devices = dict.fromkeys(cell.device for cell in self._plan_now.cells)
            if not devices.keys() & executor.facts().keys():
                raise NothingToDoError(
                    f"no device answers: {', '.join(devices)}",
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
            if self._setup.spec.profile:
                store_costs(self._store.root, self._sweep_id, work)
            for side in (self._profiles, self._sets):
                side.run(work, executor, self._emit, self._switch)

    def _pending(self, tally: Tally) -> list[Cell]:
        """Cells with pending repeats, profiles or sets; a failed export is retried."""
        return [*_open_cells(self._plan_now, tally), *self._open_sides()]

    def _open_sides(self) -> list[Cell]:
        return [*self._profiles.open_cells(), *self._sets.open_cells()]

    def _export(self, tally: Tally) -> Exports:
        tools = ExportTools(
            cache=ArtifactCache(self._workspace.artifacts),
            # On this host, because the files are exported here.
            infer=create_agent(HOST_CPU, {}).infer,
            emit=self._emit,
            switch=self._switch,
            purpose=f"sweep {self._sweep_id}, which exports models",
            is_trusted=self._options.is_trusted,
        )
        cells = self._pending(tally)
        primed = primed_formats(self._setup, cells)
        costs = self._setup.costs_without_file(cells)
        requests = [cell.export for cell in cells if cell.export not in costs]
        if self._setup.has_canaries:
            requests.append(canary_request())
        exports = build_artifacts(requests, primed, tools)
        unopened = {one: without_file(one.format, cost) for one, cost in costs.items()}
        return replace(exports, artifacts={**exports.artifacts, **unopened})

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
            plan=self._plan_now,
            places=self._setup.places,
            artifacts=exports.artifacts,
            failures=exports.failures,
            primers=exports.primers,
            canaries=self._setup.canaries(exports.artifacts.get(canary_request())),
            is_trusted=self._options.is_trusted,
        )

    def _announce(self, tally: Tally) -> None:
        plan = self._plan_now
        n_repeats = plan.n_repeats
        n_done = n_repeats - sum(1 for cell in plan.cells for _ in attempts_left(plan, cell, tally))
        whole_s = measuring_s(plan, self._store.history(), self._setup.places)
        share_left = 1 - n_done / n_repeats
        self._emit(
            SweepStarted(
                sweep_id=self._sweep_id,
                n_cells=len(plan.cells),
                n_repeats=n_repeats,
                n_done=n_done,
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
            is_interrupted=self._switch.is_stopping
            and (tally.n_finished < n_repeats or bool(self._open_sides())),
            n_profile_failed=self._profiles.n_failed,
            n_sets_failed=self._sets.n_failed,
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


def _open_cells(plan: Plan, tally: Tally) -> list[Cell]:
    return [cell for cell in plan.cells if any(attempts_left(plan, cell, tally))]

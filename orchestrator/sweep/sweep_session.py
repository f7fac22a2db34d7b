"""One run of one sweep, new or resumed."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import perf_counter

from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.stored.disturbance import disturbed_repeats
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.sweep_record import SweepState, stamp_now
from fleetrank.analysis.stored.sweep_tags import SweepTags
from fleetrank.device_agents.contract.kind import Kind
from fleetrank.device_agents.contract.task import ReplicaPolicy
from fleetrank.device_agents.registry import HOST_CPU, create_agent, load_kind
from fleetrank.foundation.errors import FleetError, raise_together
from fleetrank.foundation.formats import runtime_of
from fleetrank.foundation.vocabulary import Origin, Runtime
from fleetrank.foundation.wording import count_of
from fleetrank.models.cache import ArtifactCache
from fleetrank.models.cards.card import ExportRequest, Source
from fleetrank.models.errors import ModelError
from fleetrank.models.export.request import check_ready
from fleetrank.models.networks.primer import canary_request
from fleetrank.orchestrator.dispatch.controller import Controller, Recorder
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.dispatch.decide.work import Exports, SweepWork, attempts_left
from fleetrank.orchestrator.dispatch.stop_switch import StopSwitch, listening, sigterm_as_ctrl_c
from fleetrank.orchestrator.errors import NothingToDoError, OrchestratorError, StoreError
from fleetrank.orchestrator.export import build_artifacts
from fleetrank.orchestrator.identity import Cell, Plan, SkippedCell
from fleetrank.orchestrator.keys import profiled_key, replicated_key
from fleetrank.orchestrator.one_export import ExportTools, host_turn
from fleetrank.orchestrator.plan.estimate import RAY_S, copy_bytes, exporting_s, measuring_s
from fleetrank.orchestrator.plan.pinning import replica_cpus
from fleetrank.orchestrator.plan.plan import narrow
from fleetrank.orchestrator.progress import Publisher, Subscriber
from fleetrank.orchestrator.progress_events import Notice, SweepFinished, SweepStarted
from fleetrank.orchestrator.progress_file import ProgressFile
from fleetrank.orchestrator.store.journal import Journal
from fleetrank.orchestrator.store.parts import refuse_changed_journal
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.side import (
    PROFILE_FORM,
    REPLICA_FORM,
    JournalSink,
    SideForm,
    store_module_macs,
)
from fleetrank.orchestrator.sweep.dispatch_backend import DispatchBackend
from fleetrank.orchestrator.sweep.side_pass import SidePass, open_cells
from fleetrank.orchestrator.sweep.sweep_setup import (
    Setup,
    cores_of,
    idle_cores,
    memory_of,
    primed_formats,
)
from fleetrank.orchestrator.token_costs import without_file
from fleetrank.orchestrator.workspace.provenance import sweep_facts
from fleetrank.orchestrator.workspace.workspace import Workspace

_MB = 1e6
_Asked = Iterable[tuple[Cell, str | None]]
"""Cells of a side pass, and why each cannot be measured."""


def profiles_of(setup: Setup, plan: Plan) -> Plan:
    """The profiles of a plan: the cells that can be profiled, and the others with the reason; pure.

    Each key is that of a task of the pass. Empty without `profile: true`.
    """
    return _side(PROFILE_FORM, plan, _asked_profiles(setup, plan))


def sets_of(setup: Setup, plan: Plan) -> Plan:
    """The sets of a plan: each cell with each number of processes; pure.

    Empty without `replicas`. A set that cannot run is skipped with the reason.
    """
    return _side(REPLICA_FORM, plan, _asked_sets(setup, plan))


def _side(form: SideForm, plan: Plan, asked: _Asked) -> Plan:
    cells: list[Cell] = []
    skipped: list[SkippedCell] = []
    for cell, reason in asked:
        if reason is None:
            cells.append(cell)
        else:
            skipped.append(SkippedCell(label=f"{form.noun} of {cell.label}", reason=reason))
    # Nothing takes turns, and no device takes over another's: a profile is only of use beside the
    # latency of its device.
    return replace(
        plan,
        cells=tuple(cells),
        skipped=tuple(skipped),
        rounds=None,
        repeats=plan.least_repeats,
        until=None,
        hosts=replace(plan.hosts, takeover=False),
    )


def _spent_s(rows: Iterable[Mapping[str, object]]) -> float:
    """The time in which at least one row was measured."""
    spans = sorted(
        (datetime.fromisoformat(begin), datetime.fromisoformat(end))
        for row in rows
        if isinstance(begin := row.get("started_utc"), str)
        and isinstance(end := row.get("finished_utc"), str)
    )
    spent_s, until = 0.0, datetime.min.replace(tzinfo=UTC)
    for begin, end in spans:
        spent_s += max((end - max(begin, until)).total_seconds(), 0.0)
        until = max(until, end)
    return spent_s


def _why_not_profiled(setup: Setup, cell: Cell) -> str | None:
    device = setup.devices[cell.device]
    if device.kind_of.why_not_profiled is None:
        return f"a device of kind {device.kind} cannot be profiled"
    return device.kind_of.why_not_profiled(cell.execution)


def _asked_profiles(setup: Setup, plan: Plan) -> Iterator[tuple[Cell, str | None]]:
    for cell in plan.cells if setup.spec.profile else ():
        key, execution = profiled_key(cell.cell_key), replace(cell.execution, is_profiled=True)
        yield replace(cell, cell_key=key, execution=execution), _why_not_profiled(setup, cell)


def _asked_sets(setup: Setup, plan: Plan) -> Iterator[tuple[Cell, str | None]]:
    asked = setup.spec.replicas
    if asked is None:
        return
    for cell in plan.cells:
        cores = cores_of(setup.devices[cell.device], setup.fleet)
        for count in asked.processes:
            cpus = replica_cpus(setup.spec, cell.execution, count, cores)
            policy = ReplicaPolicy(count=count, run_s=asked.run_s, cpus=cpus)
            key = replicated_key(cell.cell_key, count)
            execution = replace(cell.execution, replicas=policy)
            yield replace(cell, cell_key=key, execution=execution), _why_no_set(setup, cell, count)


def _why_no_set(setup: Setup, cell: Cell, n_processes: int) -> str | None:
    """The reason why a set cannot run; its copies must fit, by the least that one copy needs."""
    device = setup.devices[cell.device]
    if device.kind_of.why_not_replicated is None:
        return (
            f"a device of kind {device.kind} runs one process at a time: name a cpu, "
            "a board or a cuda device"
        )
    if reason := device.kind_of.why_not_replicated(cell.execution):
        return reason
    each, memory_bytes = copy_bytes(cell.export), memory_of(device, setup.fleet)
    if memory_bytes is None or n_processes * each <= memory_bytes:
        return None
    return (
        f"{n_processes} copies of {each / _MB:,.0f} MB each, for weights and cache alone, do not "
        f"fit in {memory_bytes / _MB:,.0f} MB: ask for {memory_bytes // each} processes at most"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run a sweep; these options do not change the results.

    Attributes:
        is_inline: agents run in this process instead of through Ray.
        cluster: address of the Ray cluster to run on; `None` starts a Ray on this host.
        is_trusted: the user allows model-supplied code to run.
        subscribers: receive the events.
        retries_failed: repeats that failed for good in an earlier run are tried again.
        repeats_noisy: the disturbed repeats of noisy cells are measured again too.
        restricted_to: a pattern of the cells that this run measures; `None` measures all. Other
            pending repeats stay pending.
        tags: of a new sweep; `None` without any.
        needed_hosts: hosts that must answer at the start.
    """

    is_inline: bool = False
    cluster: str | None = None
    is_trusted: bool = False
    subscribers: Sequence[Subscriber] = ()
    retries_failed: bool = False
    repeats_noisy: bool = False
    restricted_to: str | None = None
    tags: SweepTags | None = None
    needed_hosts: Sequence[str] = ()


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
    return _why_not_run(load_kind(HOST_CPU), runtime_of(request.format))


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
        self._spent_s = 0.0
        self._profiles, self._sets = (
            SidePass(store, sweep_id, form, side_of(setup, self._plan_now))
            for form, side_of in ((PROFILE_FORM, profiles_of), (REPLICA_FORM, sets_of))
        )

    def run(self, *, is_new: bool = False) -> SweepFinished:
        """Holds the sweep's lease, runs, and always leaves a correct record.

        For a sweep that `is_new` this host was checked before the sweep was stored.
        """
        started_s = perf_counter()
        with (
            self._store.lease(self._sweep_id),
            self._store.open_journal(self._sweep_id) as journal,
            sigterm_as_ctrl_c(),
        ):
            refuse_changed_journal(self._store.root, journal)
            tally = Tally.of(journal.rows())
            if self._plan_now.until is not None:
                self._spent_s = _spent_s(journal.rows())
            self._reopen(tally)
            pending = self._pending(tally)
            if not is_new:
                is_trusted = self._options.is_trusted
                check_host(self._workspace, self._setup, pending, is_trusted=is_trusted)
            begun = {"run_started_utc": stamp_now(), "finished_utc": None}
            self._store.update_record(self._sweep_id, {"state": SweepState.RUNNING, **begun})
            self._announce(tally)
            try:
                if pending:
                    self._measure(journal, tally)
                with self._host_turn("writes its results"):
                    journal.check_place()
                    self._store.publish(self._sweep_id)
            except BaseException as error:
                # While Ray starts or ends, when the handlers of `listening` are not active.
                is_interrupt = isinstance(error, KeyboardInterrupt)
                self._close_record(
                    SweepState.INTERRUPTED if is_interrupt else SweepState.FAILED, tally
                )
                raise
            outcome = self._outcome(tally, perf_counter() - started_s)
            self._close_record(outcome.state, tally)
            if not outcome.n_left:
                journal.close()
                self._pack_journal(journal)
        self._emit(outcome)
        return outcome

    def _reopen(self, tally: Tally) -> None:
        """Opens repeats that are measured again, as the options want.

        Raises:
            NothingToDoError: noisy cells are to be measured again, and no cell is noisy.
        """
        if self._options.repeats_noisy:
            rows = load_measurements(self._store.root, origins=ORIGINS)
            chosen = {cell.cell_key for cell in self._plan_now.cells}
            again = [one for one in disturbed_repeats(rows, self._sweep_id) if one[0] in chosen]
            if not again:
                raise NothingToDoError(
                    f"no chosen cell of sweep {self._sweep_id} is noisy",
                    "`report show trust` says what makes a cell so",
                )
            tally.measure_again(again)
        if not self._options.retries_failed:
            return
        n_failed = tally.reopen([cell.cell_key for cell in self._plan_now.cells])
        n_failed += self._profiles.reopen() + self._sets.reopen()
        message = f"retrying {count_of(n_failed, 'failed repeat')}"
        self._emit(Notice(level="info", message=message if n_failed else "nothing has failed"))

    def _pack_journal(self, journal: Journal) -> None:
        """Packs the journal; a failure wastes disk space but loses no row."""
        with self._host_turn("packs its journal"):
            try:
                journal.pack()
            except StoreError as error:
                self._emit(Notice(level="warning", message=f"{error.message} ({error.remedy})"))

    def _measure(self, journal: Journal, tally: Tally) -> None:
        journal.open()
        with (
            self._backend.open_hosts(self._sweep_id, self._setup) as hosts,
            listening(self._switch),
        ):
            devices = dict.fromkeys(cell.device for cell in self._plan_now.cells)
            chosen = [self._setup.devices[name] for name in devices]
            may_come = any(one.reserve or one.power for one in chosen)
            if not may_come and not devices.keys() & hosts.facts().keys():
                raise NothingToDoError(
                    f"no device answers: {', '.join(devices)}",
                    "see `fleetrank doctor` and `fleetrank devices check NAME`",
                )
            exports = self._export(tally)
            journal.check_place()
            if not exports.is_complete:
                return
            sink = JournalSink(self._store, journal)
            work = self._work(exports)
            recorder = Recorder(work, sink, self._emit)
            Controller(work, tally, hosts=hosts, recorder=recorder, switch=self._switch).run()
            if self._setup.spec.profile:
                store_module_macs(journal, work.plan.cells, exports.artifacts)
            for side in (self._profiles, self._sets):
                side.run(work, journal, hosts, self._emit, self._switch)

    def _pending(self, tally: Tally) -> list[Cell]:
        """Cells with pending repeats, profiles or sets; a failed export is retried."""
        return [*open_cells(self._plan_now, tally, self._spent_s), *self._open_sides()]

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

    def _host_turn(self, doing: str) -> AbstractContextManager[bool]:
        return host_turn(f"sweep {self._sweep_id}, which {doing}", self._emit, self._switch)

    def _work(self, exports: Exports) -> SweepWork:
        plan = self._setup.plan
        return SweepWork(
            sweep=sweep_facts(self._sweep_id, plan.seed, self._workspace.root, plan.until),
            plan=self._plan_now,
            spent_s=self._spent_s,
            places=self._setup.places,
            exports=exports,
            canaries=self._setup.canaries(exports.artifacts.get(canary_request())),
            is_trusted=self._options.is_trusted,
        )

    def _announce(self, tally: Tally) -> None:
        plan = self._plan_now
        n_repeats = plan.n_repeats
        n_done = n_repeats - sum(1 for cell in plan.cells for _ in attempts_left(plan, cell, tally))
        whole_s = measuring_s(plan, self._store.history(), self._setup.places)
        share_left, before_s = 1 - n_done / n_repeats, self._before_measuring_s(tally)
        self._emit(
            SweepStarted(
                sweep_id=self._sweep_id,
                n_cells=len(plan.cells),
                n_repeats=n_repeats,
                n_done=n_done,
                n_skipped=len(plan.skipped),
                estimate_s=None if whole_s is None else before_s + whole_s * share_left,
                platforms=tuple(sorted({cell.platform_key for cell in plan.cells})),
            )
        )

    def _before_measuring_s(self, tally: Tally) -> float:
        """About how long the start of Ray and the exports of this run take."""
        cells, cache = self._pending(tally), ArtifactCache(self._workspace.artifacts)
        costs = self._setup.costs_without_file(cells)
        missing = set[ExportRequest]()
        for request in {cell.export for cell in cells} - costs.keys():
            with contextlib.suppress(ModelError):  # the export says what is wrong with a file
                if not cache.has(request):
                    missing.add(request)
        has_ray = cells and self._backend.starts_ray
        return exporting_s(missing, idle_cores()) + (RAY_S if has_ray else 0.0)

    def _outcome(self, tally: Tally, seconds: float) -> SweepFinished:
        return SweepFinished(
            sweep_id=self._sweep_id,
            seconds=seconds,
            n_ok=tally.n_ok,
            n_failed=tally.n_failed,
            n_left=tally.n_untried(self._setup.plan),
            # A stop was requested after the last repeat had started, so nothing is missing.
            is_interrupted=self._switch.is_stopping
            and bool(open_cells(self._setup.plan, tally, self._spent_s) or self._pending(tally)),
            n_profile_failed=self._profiles.n_failed,
            n_sets_failed=self._sets.n_failed,
            is_unreal=all(
                place.origin is not Origin.MEASURED for place in self._setup.places.values()
            ),
        )

    def _close_record(self, state: SweepState, tally: Tally) -> None:
        """Writes the record; on failure the old one stays, with state `running` and no lease."""
        changes = {
            "state": state,
            "finished_utc": stamp_now(),
            "n_ok": tally.n_ok,
            "n_failed": tally.n_failed,
            "n_left": tally.n_untried(self._setup.plan),
        }
        with contextlib.suppress(OrchestratorError):
            self._store.update_record(self._sweep_id, changes)

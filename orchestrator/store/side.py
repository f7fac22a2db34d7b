"""Stores the rows of a running sweep, and rows of side tables.

Side tables are profiles, sets of processes, MACs of modules, evaluations. They are rows of the
journal like measurements; `analysis/stored/side_tables` says what they are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from fleetrank.analysis.stored.component_times import COMPONENT_TIMES, OF_MEASUREMENTS
from fleetrank.analysis.stored.part_list import NO_SWEEP
from fleetrank.analysis.stored.replica_runs import OF_SETS, REPLICA_RUNS
from fleetrank.analysis.stored.side_table import SideTable
from fleetrank.analysis.stored.side_tables import MODULE_MACS
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.replica_set import ReplicaRun, ReplicaSet
from fleetrank.foundation.lease import give_up_at_once, host_lease
from fleetrank.models.cards.card import Artifact, ExportRequest
from fleetrank.orchestrator.durable import storing, sync_file, sync_folder
from fleetrank.orchestrator.identity import Cell
from fleetrank.orchestrator.keys import (
    cell_of_side_key,
    n_replicas_of,
    profiled_key,
    replicated_key,
)
from fleetrank.orchestrator.rows import Row
from fleetrank.orchestrator.store.journal import Entry, Journal, line_of, make_line
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.small_files import locked, set_aside

SideRow = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideForm:
    """How the attempts of one kind of side pass are stored.

    Attributes:
        noun: one attempt, for messages.
        table: its rows have the columns `OF_MEASUREMENTS`, and others.
        rows_of: (row of an attempt, what it measured) to its rows here, at least one.
        cell_columns: what names the cell of a task: cell_key, and columns of the table's own.
        task_key: a stored row to the cell key of the task that made it.
    """

    noun: str
    table: SideTable
    rows_of: Callable[[Row, Measurement], Iterable[SideRow]]
    cell_columns: tuple[str, ...]
    task_key: Callable[[SideRow], str]


def side_lines(table: SideTable, rows: Iterable[SideRow], sweep_id: str | None) -> list[bytes]:
    """The lines of the journal for rows of a side table.

    Raises:
        ValueError: a row is missing, a column is not declared, or a value does not fit its column.
    """
    lines = []
    for row in rows:
        if unknown := sorted(row.keys() - table.schema.keys()):
            raise ValueError(f"{table.name} has no columns {unknown}")
        for one in table.columns:
            if one.values and row.get(one.name) not in {None, *one.values}:
                raise ValueError(f"{one.name} cannot be {row.get(one.name)}")
        lines.append(make_line({**row, "sweep_id": sweep_id}, table.name))
    if not lines:
        raise ValueError(f"no row to store in {table.name}")
    return lines


class JournalSink:
    """The `RowSink` of a results folder; with a form, that of a side pass."""

    def __init__(self, store: ResultStore, journal: Journal, form: SideForm | None = None) -> None:
        self._store = store
        self._journal = journal
        self._form = form
        self._pending: list[Row] = []
        self._unsynced: list[Path] = []

    def append(self, row: Row, measurement: Measurement | None = None) -> None:
        """Stores a row; the output of a tool goes into a separate file.

        With a form, the rows that it makes of the measurement are stored instead.
        """
        if self._form is None or measurement is None:
            self._pending.append(row)
            self._write_pending()
            return
        rows = self._form.rows_of(row, measurement)
        self._journal.append_lines(side_lines(self._form.table, rows, self._journal.sweep_id))

    def flush(self) -> None:
        """Makes every stored row safe from a power cut.

        Raises:
            MovedFolderError: the workspace was moved; all rows up to now are stored in the new
                place.
        """
        self._write_pending()
        self._sync_logs()
        self._journal.flush()
        self._journal.check_place()

    def publish(self) -> None:
        """Publishes the rows to readers; skipped while another sweep measures on this host."""
        sweep_id = self._journal.sweep_id
        with host_lease(f"sweep {sweep_id}", give_up=give_up_at_once) as is_held:
            if is_held:
                self._journal.check_place()
                self._store.publish(sweep_id)

    def _write_pending(self) -> None:
        while self._pending:
            row = self._pending[0]
            if row["raw_log"] is not None:
                # In the folder of the journal, also if the workspace has been moved.
                results = self._journal.place.parent.parent
                row = set_aside(results, row)
                self._unsynced.append(results / str(row["raw_log"]))
            # The journal keeps the rows that it cannot write.
            del self._pending[0]
            self._journal.append_lines([line_of(row)])

    def _sync_logs(self) -> None:
        for path in self._unsynced:
            with storing(path):
                sync_file(path)
        for folder in {path.parent for path in self._unsynced}:
            sync_folder(folder)
        self._unsynced.clear()


def append_side(
    results: Path,
    table: SideTable,
    rows: Sequence[SideRow],
    *,
    sweep_id: str | None = None,
) -> None:
    """Stores and publishes rows.

    Args:
        results: the results folder of a workspace.
        table: the side table.
        rows: at least one; a declared column that a row lacks becomes null.
        sweep_id: the sweep that the rows belong to, whose lease the caller holds; `None` without a
            sweep.

    Raises:
        ValueError: a row is missing, a column is not declared, or a value does not fit its column.
        StoreError: the disk is full or the folder cannot be written.
    """
    _store_lines(results, sweep_id, side_lines(table, rows, sweep_id))


def _store_lines(results: Path, sweep_id: str | None, lines: Iterable[bytes]) -> None:
    store = ResultStore(results)
    # Rows without a sweep have no driver, so each process that stores some takes a lock.
    lease = store.lease_path(NO_SWEEP)
    with nullcontext() if sweep_id is not None else locked(lease):
        store.write_schema()
        with store.open_journal(sweep_id or NO_SWEEP) as journal:
            journal.append_lines(lines)
        store.publish(sweep_id or NO_SWEEP)


def copy_side_rows(results: Path, other: Path) -> int:
    """Copies the rows without a sweep that another folder has and this one lacks; returns how many.

    Raises:
        StoreError: a packed journal is damaged, or a file cannot be read or written.
    """
    ours = set(ResultStore(results).open_journal(NO_SWEEP).lines())
    theirs = ResultStore(other).open_journal(NO_SWEEP)
    missing = [
        line
        for line in theirs.lines()
        if line not in ours and isinstance(theirs.parsed(line, 1), Entry)
    ]
    if missing:
        _store_lines(results, None, missing)
    return len(missing)


def stored_attempts(journal: Journal, form: SideForm) -> list[Row]:
    """One row for each stored attempt of a sweep's side pass, with the keys of its tasks.

    Raises:
        StoreError: the journal cannot be read.
    """
    key = (*form.cell_columns, "repeat", "attempt")
    columns = tuple(dict.fromkeys(("sweep_id", *key, *OF_MEASUREMENTS)))
    attempts: dict[tuple[object, ...], Row] = {}
    for row in journal.rows(form.table.name):
        attempts.setdefault(tuple(row.get(n) for n in key), {n: row.get(n) for n in columns})
    return [{**row, "cell_key": form.task_key(row)} for row in attempts.values()]


def store_module_macs(
    journal: Journal, cells: Iterable[Cell], artifacts: Mapping[ExportRequest, Artifact]
) -> None:
    """Stores them once for each model and workload; an artifact may not know them.

    Raises:
        StoreError: the disk is full or the folder cannot be written.
    """
    known = {(row["model"], row["workload"]) for row in journal.rows(MODULE_MACS.name)}
    for cell in cells:
        model, workload = place = (cell.export.card.name, str(cell.execution.workload))
        artifact = artifacts.get(cell.export)
        if artifact is None or place in known or not artifact.cost.by_module:
            continue
        known.add(place)
        rows = (
            {"model": model, "workload": workload, "module": module, "source_operator": operation,
             "macs": macs}
            for module, operation, macs in artifact.cost.by_module
        )  # fmt: skip
        journal.append_lines(side_lines(MODULE_MACS, rows, journal.sweep_id))


def _profile_rows(row: Row, measurement: Measurement) -> Iterator[SideRow]:
    """A row for each kernel of one attempt; one row if it failed."""
    shared, profile = {name: row[name] for name in OF_MEASUREMENTS}, measurement.profile
    shared["cell_key"] = cell_of_side_key(str(row["cell_key"]))
    if profile is None:
        yield shared
        return
    for kernel in profile.kernels:
        yield {**shared, "runs": profile.runs, "run_ns": profile.run_ns, **asdict(kernel)}


PROFILE_FORM = SideForm(
    noun="profile",
    table=COMPONENT_TIMES,
    rows_of=_profile_rows,
    cell_columns=("cell_key",),
    task_key=lambda row: profiled_key(str(row["cell_key"])),
)


def _set_rows(row: Row, measurement: Measurement) -> Iterator[SideRow]:
    """A row for each process of one attempt; one row if no process has started."""
    key, found = str(row["cell_key"]), measurement.replicas
    shared = {
        **{name: row[name] for name in OF_SETS},
        "cell_key": cell_of_side_key(key),
        "set_id": f"{row['sweep_id']}/{key}/{row['repeat']}/{row['attempt']}",
        "n_replicas": n_replicas_of(key),
    }
    if found is None or not found.runs:
        yield shared
        return
    shared["run_s"] = found.run_s
    if found.core_use is not None:
        shared["core_use"] = found.core_use.value
    for number, run in enumerate(found.runs):
        yield {**shared, **(_of_device(found) if number == 0 else {}), **_of_process(run)}


def _of_device(found: ReplicaSet) -> Row:
    if found.energy is None:
        return {}
    return {
        "device_energy_mj": found.energy.mj,
        "device_energy_ns": found.energy.window_ns,
        "energy_method": found.energy.method.value,
    }


_OF_PROCESS = (
    "replica", "start_ns", "end_ns", "run_peak_memory_bytes", "process_memory_bytes",
    "involuntary_switches",
)  # fmt: skip
"""Columns that have the names of fields."""


def _of_process(run: ReplicaRun) -> Row:
    is_measured = run.start_ns is not None
    return {
        **{name: getattr(run, name) for name in _OF_PROCESS},
        "given_cpus": None if run.given_cpus is None else list(run.given_cpus),
        "cpus": None if run.cpus is None else list(run.cpus),
        "inferences": len(run.samples_ns) if is_measured else None,
        "samples_ns": list(run.samples_ns) if is_measured else None,
        "replica_error_kind": None if run.error_kind is None else run.error_kind.value,
        "replica_error_message": run.error_message,
        "flags": [flag.value for flag in run.flags],
    }


REPLICA_FORM = SideForm(
    noun="set",
    table=REPLICA_RUNS,
    rows_of=_set_rows,
    cell_columns=("cell_key", "n_replicas"),
    task_key=lambda row: replicated_key(str(row["cell_key"]), int(str(row["n_replicas"]))),
)

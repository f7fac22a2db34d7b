"""Stores what a side pass of a sweep measures, and says which attempts are stored."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fleetrank.analysis.stored.side.component_times import OF_MEASUREMENTS
from fleetrank.analysis.stored.side.side_table import SideTable, read_side
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.orchestrator.rows.measured_columns import Row
from fleetrank.orchestrator.store.side_records import append_side

SideRow = Mapping[str, object]

_TIMES = ("started_utc", "finished_utc")


@dataclass(frozen=True, slots=True, kw_only=True)
class SideForm:
    """How the attempts of one kind of side pass are stored.

    Attributes:
        table: its rows have the columns `OF_MEASUREMENTS`, and others.
        rows_of: (row of an attempt, what it measured) to its rows here, at least one.
        cell_columns: what names the cell of a task: cell_key, and columns of the table's own.
        task_key: a stored row to the cell key of the task that made it.
    """

    table: SideTable
    rows_of: Callable[[Row, Measurement], Iterable[SideRow]]
    cell_columns: tuple[str, ...]
    task_key: Callable[[SideRow], str]


def shared_columns(row: Row, names: Iterable[str] = OF_MEASUREMENTS) -> dict[str, object]:
    """Columns of a row of `measurements` in the types of a side table."""
    return {name: _as_time(row[name]) if name in _TIMES else row[name] for name in names}


def _as_time(value: object) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else None


class SideSink:
    """The `RowSink` of one side pass of one sweep: each flush writes one file."""

    def __init__(self, results: Path, sweep_id: str, form: SideForm) -> None:
        self._results = results
        self._sweep_id = sweep_id
        self._form = form
        self._pending: list[SideRow] = []

    def append(self, row: Row, measurement: Measurement) -> None:
        """Keeps the rows of one attempt until the next flush."""
        self._pending += self._form.rows_of(row, measurement)

    def flush(self) -> None:
        """Stores every kept row; raises `StoreError`, and the rows stay."""
        if self._pending:
            append_side(self._results, self._form.table, self._pending, sweep_id=self._sweep_id)
            self._pending = []

    def publish(self) -> None:
        """The same as `flush`: readers see a file as soon as it is written."""
        self.flush()


def stored_attempts(results: Path, sweep_id: str, form: SideForm) -> list[dict[str, object]]:
    """One row for each stored attempt of a sweep's side pass, with the keys of its tasks.

    Raises:
        DamagedPartError: a file of the side table is damaged.
    """
    found = read_side(results, form.table, sweeps=(sweep_id,))
    key = (*form.cell_columns, "repeat", "attempt")
    columns = dict.fromkeys(("sweep_id", *key, *OF_MEASUREMENTS))
    attempts = found.select(*columns).unique(key, maintain_order=True)
    return [{**row, "cell_key": form.task_key(row)} for row in attempts.to_dicts()]

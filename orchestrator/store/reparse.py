"""Reads stored raw logs again with today's parsers; different results become new attempts.

A stored row is never changed. The new attempt has the conditions of the old one, and the setting
`reparsed_attempt` names the old one; `fleetrank_version` is that of the parser. Only results of a
parser are decided again: an attempt that failed because of the phone's state stays failed.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fleetrank.analysis.stored.columns import COLUMNS, SCHEMA_VERSION
from fleetrank.device_agents.contract.measurement import Measurement, WorkerFacts
from fleetrank.device_agents.registry import KINDS
from fleetrank.device_agents.timing import has_drift, has_outliers, has_spread
from fleetrank.foundation.codec import parse_json
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.vocabulary import ErrorKind, Flag, Origin, Runtime, Status
from fleetrank.orchestrator.errors import OrchestratorError, StoreError
from fleetrank.orchestrator.identity import RowKey, canonical_json
from fleetrank.orchestrator.rows import SUMMARIES, Row, measured_columns
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.small_files import read_log
from fleetrank.orchestrator.workspace.workspace import package_versions

NOTE = "reparsed_attempt"
"""Setting of a row that comes from a stored log: the attempt whose log was read again."""

_JUDGED_BY_PARSERS = frozenset(
    {
        ErrorKind.BAD_OUTPUT.value,
        ErrorKind.UNSUPPORTED.value,
        ErrorKind.BAD_ARTIFACT.value,
        ErrorKind.CRASHED.value,
        ErrorKind.OUT_OF_MEMORY.value,
    }
)
_ERROR_COLUMNS = (
    "error_kind", "error_message", "error_remedy", "error_stage", "error_is_transient", "exit_code",
)  # fmt: skip
_SAMPLE_FLAGS = {
    Flag.SPREAD: has_spread,
    Flag.OUTLIERS: has_outliers,
    Flag.DRIFT: has_drift,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reparsed:
    """The result of today's parser for one stored log.

    Attributes:
        old: the row of the attempt that made the log.
        new: the next attempt; `None` if nothing changed or the parser rejects the log.
        changes: column to its old and its new value.
        refusal: why the parser rejects a log whose row is valid. Nothing is stored for it, because
            a failed attempt would not replace the valid one.
    """

    old: Row
    new: Row | None
    changes: tuple[tuple[str, object, object], ...]
    refusal: str | None = None


def reparse_sweep(store: ResultStore, sweep_id: str) -> list[Reparsed]:
    """Reads every stored log of a sweep again; stores nothing."""
    rows = store.open_journal(sweep_id).rows()
    return [_compare(old, next_attempt, store.root) for old, next_attempt in _newest_with_log(rows)]


def store_reparsed(store: ResultStore, sweep_id: str, reparsed: Iterable[Reparsed]) -> int:
    """Appends the new attempts to the journal and publishes them; the caller holds the lease.

    Returns:
        The number of new attempts.

    Raises:
        StoreError: the disk is full.
    """
    new_rows = [item.new for item in reparsed if item.new is not None]
    if new_rows:
        with store.open_journal(sweep_id) as journal:
            for row in new_rows:
                journal.append(row)
        store.publish(sweep_id)
    return len(new_rows)


def _newest_with_log(rows: Iterable[Row]) -> Iterator[tuple[Row, int]]:
    """Yields per repeat the newest attempt with a usable log, and the next attempt's number."""
    repeats: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        key = RowKey.of(row)
        repeats[key.cell_key, key.repeat].append(row)
    for attempts in repeats.values():
        attempts.sort(key=_attempt)
        readable = [row for row in attempts if row.get("raw_log") and _is_judged(row)]
        if readable:
            yield readable[-1], _attempt(attempts[-1]) + 1


def _attempt(row: Row) -> int:
    return RowKey.of(row).attempt


def _is_judged(row: Row) -> bool:
    return row["status"] == Status.OK.value or row.get("error_kind") in _JUDGED_BY_PARSERS


def _compare(old: Row, next_attempt: int, root: Path) -> Reparsed:
    try:
        columns = _read(old, root)
    except (FleetError, OrchestratorError) as error:
        is_news = old["status"] == Status.OK.value
        return Reparsed(old=old, new=None, changes=(), refusal=str(error) if is_news else None)
    changes = tuple(
        (name, old.get(name), value) for name, value in columns.items() if old.get(name) != value
    )
    if not changes:
        return Reparsed(old=old, new=None, changes=())
    noted = {**_settings(columns), NOTE: _attempt(old)}
    new = old | columns
    new |= {
        "attempt": next_attempt,
        "schema_version": SCHEMA_VERSION,
        "fleetrank_version": package_versions(["fleetrank"]).get("fleetrank", "unknown"),
        "runtime_settings": canonical_json(noted),
    }
    return Reparsed(old=old, new=new, changes=changes)


def decided_columns(fields: Collection[str]) -> tuple[str, ...]:
    """The columns that a reading decides: fields of it, or calculated from its samples."""
    by_field = (column.name for column in COLUMNS if column.field in fields)
    return (*by_field, *SUMMARIES, "statistic")


def _read(row: Row, root: Path) -> Row:
    """What today's parser makes of the row's log, as columns."""
    log = read_log(root, row) or ""
    for one in KINDS.values():
        reader = None if one.log_reader is None else one.log_reader()
        if reader is not None and reader.is_own(log):
            runtime, origin = Runtime(str(row["runtime"])), Origin(str(row["origin"]))
            return _columns(row, reader.read(log, runtime, origin), decided_columns(reader.fields))
    raise StoreError(
        f"the log {row['raw_log']} is not a log of a known kind of device",
        "restore it from a copy; its row does not change",
    )


def _columns(old: Row, measurement: Measurement, decided: Iterable[str]) -> Row:
    """Returns the columns that the parser decides, as they would be stored today."""
    worker = measurement.worker or WorkerFacts()
    measured = measured_columns(measurement)
    columns = {name: measured[name] for name in decided}
    settings = _settings(old) | dict(worker.settings)
    return {
        **columns,
        **dict.fromkeys(_ERROR_COLUMNS),
        "status": Status.OK.value,
        "runtime_settings": canonical_json(settings),
        "runtime_version": worker.runtime_version or old.get("runtime_version"),
        "flags": _flags(old, measurement.samples_ns),
    }


def _settings(row: Row) -> dict[str, object]:
    """Returns the settings of a row; empty if the text cannot be read."""
    try:
        settings = parse_json(str(row.get("runtime_settings") or "{}"))
    except FleetError:
        return {}
    return dict(settings) if isinstance(settings, dict) else {}


def _flags(old: Row, samples_ns: tuple[int, ...]) -> list[str]:
    """Returns the old flags, with the flags that depend only on samples decided again."""
    stored = old.get("flags")
    known = set(stored) if isinstance(stored, list) else set()
    for flag, is_doubtful in _SAMPLE_FLAGS.items():
        known.discard(flag.value)
        if is_doubtful(samples_ns):
            known.add(flag.value)
    return [flag.value for flag in Flag if flag.value in known]

"""Verifies a sweep: checks its record and compares its journal and its parts by value."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from fleetrank.analysis.stored.part_files import damage_error, what_is_wrong
from fleetrank.analysis.stored.sweep_record import record_problems
from fleetrank.foundation.wording import count_of
from fleetrank.orchestrator.errors import StoreError, UsageError
from fleetrank.orchestrator.identity.keys import RowKey
from fleetrank.orchestrator.store.health.differences import (
    Difference,
    Side,
    contradictions,
    differences,
)
from fleetrank.orchestrator.store.journals.row_index import (
    IS_CHECKED,
    KEY,
    PART,
    JournalIndex,
    PartsIndex,
    index_journal,
    index_parts,
)
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.small_files import RESTORE_RECORD
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

_REPAIR = "`fleetrank results verify` with `repair=true`"
KEEP = (
    "the journal is damaged, the Parquet parts are not: keep them, delete nothing; "
    f"{_REPAIR} writes the rows of the parts into the journal again"
)
KEEP_BOTH = (
    "the journal lacks rows too: delete nothing, keep a copy of journal and parts, and use the "
    "parts that can be read"
)
_READ_PAST = (
    "leave the line in the journal: readers skip it, and `fleetrank sweep resume` measures a "
    f"repeat again that was lost with it; or {_REPAIR} removes it"
)
_COMPACT = "`fleetrank results compact` publishes what is in the journal only"
_WRITTEN_SO = (
    "a row that was written wrong cannot be repaired: `fleetrank results exclude` leaves it out "
    "of every figure, and a new sweep measures its cell again"
)
_REMEDY_OF_SIDE = {
    Side.PARTS: f"the journal is right: {_REPAIR} keeps the part under another name, and its rows "
    "are made again from the journal",
    Side.JOURNAL: f"the Parquet part is right: {_REPAIR} writes its rows into the journal again",
    Side.UNKNOWN: "an older fleetrank wrote journal and part without checksums, so the right "
    "side is unknown: keep both, and `fleetrank results exclude` leaves the row out",
}
_LISTED = 20
"""Maximum number of rows of one kind that are listed; the rest are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault in one sweep's stored rows; the remedy says which side to keep."""

    text: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The result of verifying one sweep.

    Attributes:
        n_unchecked: rows and parts that an older fleetrank wrote without a checksum; damage in them
            is found only if journal and part differ.
    """

    faults: tuple[Fault, ...]
    n_unchecked: int
    journal: JournalIndex
    parts: PartsIndex
    differing: tuple[Difference, ...]

    @property
    def is_journal_damaged(self) -> bool:
        """Whether the journal has a line without a row, or lacks a row that the parts have."""
        is_damaged = bool(self.journal.problems) or self.journal.damaged is not None
        return is_damaged or not _only_in(self.parts.rows, self.journal.rows).is_empty()


def examine(store: ResultStore, sweep_id: str) -> Examined:
    """Compares the stored files of one sweep; writes nothing."""
    journal_file = store.open_journal(sweep_id)
    journal, parts = index_journal(journal_file), index_parts(store.parts_folder(sweep_id))
    differing = tuple(differences(journal_file, journal, parts))
    n_lost = _only_in(parts.rows, journal.rows).height
    faults = [
        *_faults_of_record(store, sweep_id, parts),
        *_faults_of_journal(journal, parts, n_lost),
        *_faults_of_parts(parts, differing, n_lost),
    ]
    n_unchecked = sum(rows.height - rows[IS_CHECKED].sum() for rows in (journal.rows, parts.rows))
    return Examined(
        faults=tuple(faults),
        n_unchecked=int(n_unchecked),
        journal=journal,
        parts=parts,
        differing=differing,
    )


def _only_in(rows: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows whose key the other table lacks."""
    return rows.join(others, on=KEY, how="anti", maintain_order="left")


def _faults_of_record(store: ResultStore, sweep_id: str, parts: PartsIndex) -> Iterator[Fault]:
    try:
        record = store.sweep_record(sweep_id)
    except StoreError as error:
        yield Fault(text=error.message, remedy=error.remedy)
        return
    except UsageError:
        path = store.record_path(sweep_id)
        yield Fault(text=f"{path} is missing", remedy=RESTORE_RECORD)
        return
    n_lost = record.n_published - parts.rows.height
    if n_lost > 0 and not parts.damaged:
        text = f"Parquet parts: {count_of(n_lost, 'row')} of {record.n_published:,} missing"
        yield Fault(text=text, remedy=_COMPACT)
    if record.spec is None:
        return
    try:
        SweepSpec.model_validate(record.spec)
    except ValidationError as error:
        for problem in record_problems(error, "spec"):
            yield Fault(text=f"{store.record_path(sweep_id)}: {problem}", remedy=RESTORE_RECORD)


def _faults_of_journal(journal: JournalIndex, parts: PartsIndex, n_lost: int) -> Iterator[Fault]:
    if not parts.damaged:
        unpublished = _only_in(journal.rows, parts.rows)
        texts = [f"{RowKey.of(row).label}: in the journal only" for row in _head(unpublished)]
        yield from (Fault(text=text, remedy=_COMPACT) for text in texts)
        yield from _more(unpublished, "rows in the journal only", _COMPACT)
    keep = KEEP_BOTH if parts.damaged else KEEP
    for problem in journal.problems[:_LISTED]:
        yield Fault(
            text=f"journal, line {problem.line}: {problem.reason}",
            remedy=keep if n_lost else _READ_PAST,
        )
    yield from _more(journal.problems, "lines of the journal that are not rows", _READ_PAST)
    if journal.damaged is not None:
        yield Fault(text=what_is_wrong(journal.damaged), remedy=keep)
    if n_lost:
        text = f"journal: {count_of(n_lost, 'row')} of the Parquet parts not in it"
        yield Fault(text=text, remedy=keep)


def _faults_of_parts(
    parts: PartsIndex, differing: Sequence[Difference], n_lost: int
) -> Iterator[Fault]:
    """Yields faults of parts; a part is replaced only if the journal has its rows."""

    def remedy(path: Path) -> str:
        return KEEP_BOTH if n_lost else damage_error(path).remedy

    for path in parts.damaged:
        yield Fault(text=what_is_wrong(path), remedy=remedy(path))
    for row in _head(parts.rows.filter(~pl.struct(KEY).is_first_distinct())):
        path = parts.paths[row[PART]]
        yield Fault(
            text=f"{RowKey.of(row).label}: stored twice, again in {path}", remedy=remedy(path)
        )
    for one in differing[:_LISTED]:
        yield Fault(text=one.text, remedy=_REMEDY_OF_SIDE[one.wrong])
    yield from _more(differing, "rows that differ", _REMEDY_OF_SIDE[Side.UNKNOWN])
    known = {one.key for one in differing}
    for key, texts in contradictions(parts).items():
        yield from (Fault(text=text, remedy=_WRITTEN_SO) for text in texts if key not in known)


def _head(rows: pl.DataFrame) -> list[dict[str, Any]]:
    return rows.head(_LISTED).to_dicts()


def _more(all_of: Sequence[object] | pl.DataFrame, what: str, remedy: str) -> Iterator[Fault]:
    if len(all_of) > _LISTED:
        yield Fault(text=f"and {len(all_of) - _LISTED:,} more {what}", remedy=remedy)

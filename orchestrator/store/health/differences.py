"""Rows that differ between journal and parts: which values, and which side is damaged."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import polars as pl

from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.rows.measured_columns import Row
from fleetrank.orchestrator.store.health.summaries import wrong_summaries
from fleetrank.orchestrator.store.journals.journal import Journal
from fleetrank.orchestrator.store.journals.row_index import (
    HASH,
    IS_CHECKED,
    KEY,
    PART,
    JournalIndex,
    Key,
    PartsIndex,
    row_key,
    row_name,
)
from fleetrank.orchestrator.store.parquet.part_reader import part_frames
from fleetrank.orchestrator.store.parquet.parts import to_frame

_COMPARED = 1000
"""Maximum number of differing rows that are read again; their samples are in memory."""
_SHOWN_COLUMNS = 3
_SHOWN_LETTERS = 60


class Side(Enum):
    """Which of two different values is damaged."""

    JOURNAL = "journal"
    PARTS = "parts"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One row; `text` names the columns and both values, `part` is the file."""

    key: Key
    part: Path
    wrong: Side
    text: str


def differences(journal: Journal, lines: JournalIndex, parts: PartsIndex) -> Iterator[Difference]:
    """The rows whose values differ, in the order of the parts."""
    both = parts.rows.join(lines.rows, on=KEY, maintain_order="left", suffix="_of_journal")
    differing = both.filter(pl.col(HASH) != pl.col(f"{HASH}_of_journal"))
    if differing.is_empty():
        return
    read = differing.head(_COMPARED)
    keys = read.select(KEY)
    in_parts = _rows_of_parts({parts.paths[number] for number in read[PART]}, keys)
    in_journal = _rows_of_journal(journal, keys)
    for row in differing.iter_rows(named=True):
        key = row_key(row)
        pair = in_journal.get(key), in_parts.get(key)
        yield Difference(
            key=key,
            part=parts.paths[row[PART]],
            wrong=_wrong_side(
                *pair, is_line_checked=row[f"{IS_CHECKED}_of_journal"], is_sealed=row[IS_CHECKED]
            ),
            text=f"{row_name(row)}: journal and {parts.paths[row[PART]].name} differ"
            + _columns(*pair),
        )


def _wrong_side(
    line: Row | None, stored: Row | None, *, is_line_checked: bool, is_sealed: bool
) -> Side:
    """Decides by checksum, then by samples that contradict the summaries of their row."""
    if is_line_checked and not is_sealed:
        return Side.PARTS
    is_line_wrong = line is not None and any(wrong_summaries(line))
    is_stored_wrong = stored is not None and any(wrong_summaries(stored))
    if is_line_wrong != is_stored_wrong:
        return Side.JOURNAL if is_line_wrong else Side.PARTS
    # Both checksums match, so the part was made from the journal with other values.
    return Side.PARTS if is_line_checked else Side.UNKNOWN


def _columns(line: Row | None, stored: Row | None) -> str:
    if line is None or stored is None:
        return ""
    names = [name for name, value in line.items() if not _is_same(value, stored[name])]
    shown = [f"{name} {_short(line[name])} and {_short(stored[name])}" for name in names]
    left = len(names) - _SHOWN_COLUMNS
    return ": " + ", ".join(shown[:_SHOWN_COLUMNS]) + (f" and {left} more" if left > 0 else "")


def _is_same(first: object, second: object) -> bool:
    # NaN equals NaN here.
    return repr(first) == repr(second)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_LETTERS else text[:_SHOWN_LETTERS] + "..."


def _rows_of_parts(paths: Iterable[Path], keys: pl.DataFrame) -> dict[Key, Row]:
    frames = (frame for path in paths for frame in part_frames(path))
    return {row_key(row): row for frame in frames for row in _wanted(frame, keys)}


def _rows_of_journal(journal: Journal, keys: pl.DataFrame) -> dict[Key, Row]:
    known, found = set(keys.rows()), dict[Key, Row]()
    # A damaged packed file is reported as a separate fault.
    with contextlib.suppress(StoreError):
        for row in journal.rows():
            if row_key(row) in known and row_key(row) not in found:
                found |= {row_key(typed): typed for typed in _wanted(to_frame([row]), keys)}
    return found


def _wanted(frame: pl.DataFrame, keys: pl.DataFrame) -> Iterator[Row]:
    return frame.join(keys, on=KEY, how="semi").iter_rows(named=True)

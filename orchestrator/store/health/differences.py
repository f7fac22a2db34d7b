"""Rows that differ between journal and parts, and rows whose samples contradict their summaries."""

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import polars as pl

from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.identity.keys import RowKey
from fleetrank.orchestrator.rows.measured_columns import Row, summarise
from fleetrank.orchestrator.store.journals.journal import Journal
from fleetrank.orchestrator.store.journals.row_index import (
    HASH,
    IS_CHECKED,
    KEY,
    PART,
    JournalIndex,
    PartsIndex,
)
from fleetrank.orchestrator.store.parquet.part_reader import part_frames
from fleetrank.orchestrator.store.parquet.parts import to_frame

_COMPARED = 1000
"""Maximum number of differing rows that are read again; their samples are in memory."""
_SUMMARY_COLUMNS = [*KEY, "samples_ns", *summarise([1])]

_TOLERANCE = 1e-9
"""Sums in another order differ by about 1e-16; an edited figure differs much more."""
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

    key: RowKey
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
        key = RowKey.of(row)
        pair = in_journal.get(key), in_parts.get(key)
        yield Difference(
            key=key,
            part=parts.paths[row[PART]],
            wrong=_wrong_side(
                *pair, is_line_checked=row[f"{IS_CHECKED}_of_journal"], is_sealed=row[IS_CHECKED]
            ),
            text=f"{RowKey.of(row).label}: journal and {parts.paths[row[PART]].name} differ"
            + _columns(*pair),
        )


def _wrong_side(
    line: Row | None, stored: Row | None, *, is_line_checked: bool, is_sealed: bool
) -> Side:
    """Decides by checksum, then by samples that contradict the summaries of their row."""
    if is_line_checked and not is_sealed:
        return Side.PARTS
    if line is None and stored is None:
        return Side.UNKNOWN  # beyond `_COMPARED`: a later check reads it, after a repair of these
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


def _rows_of_parts(paths: Iterable[Path], keys: pl.DataFrame) -> dict[RowKey, Row]:
    frames = (frame for path in paths for frame in part_frames(path))
    return {RowKey.of(row): row for frame in frames for row in _wanted(frame, keys)}


def _rows_of_journal(journal: Journal, keys: pl.DataFrame) -> dict[RowKey, Row]:
    known, found = set(keys.rows()), dict[RowKey, Row]()
    # A damaged packed file is reported as a separate fault.
    with contextlib.suppress(StoreError):
        for row in journal.rows():
            if RowKey.of(row) in known and RowKey.of(row) not in found:
                found |= {RowKey.of(typed): typed for typed in _wanted(to_frame([row]), keys)}
    return found


def _wanted(frame: pl.DataFrame, keys: pl.DataFrame) -> Iterator[Row]:
    return frame.join(keys, on=KEY, how="semi").iter_rows(named=True)


def wrong_summaries(row: Mapping[str, object]) -> Iterator[str]:
    """Yields the summaries of a row that its samples contradict."""
    samples = row["samples_ns"]
    if not isinstance(samples, list):
        return
    for name, expected in summarise(samples).items():
        stored = row[name]
        if not _is_equal(stored, expected):
            yield f"{RowKey.of(row).label}: {name} is {stored}, its samples give {expected}"


def contradictions(parts: PartsIndex) -> dict[RowKey, list[str]]:
    """Returns by row key the summaries that the row's samples contradict."""
    found = {}
    for path in parts.paths:
        for row in () if path in parts.damaged else _sampled(path):
            if wrong := list(wrong_summaries(row)):
                found[RowKey.of(row)] = wrong
    return found


def _sampled(path: Path) -> Iterator[Row]:
    for frame in part_frames(path, _SUMMARY_COLUMNS):
        yield from frame.filter(pl.col("samples_ns").is_not_null()).iter_rows(named=True)


def _is_equal(stored: object, expected: float | None) -> bool:
    if expected is None or not isinstance(stored, int | float):
        return stored is expected
    return math.isclose(stored, expected, rel_tol=_TOLERANCE)

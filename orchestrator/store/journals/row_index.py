"""Keys and hashes of many rows, to compare journal and parts by value.

A row takes about 60 bytes here. So a million rows with all their samples can be compared with only
a few of them in memory.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fleetrank.analysis.stored.columns import ROW_KEY, SCHEMA
from fleetrank.analysis.stored.part_files import PARTS, ROWS_AT_ONCE
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.store.journals.journal import Journal, JournalProblem
from fleetrank.orchestrator.store.journals.journal_line import Entry
from fleetrank.orchestrator.store.parquet.part_reader import (
    is_part_sealed,
    packed_frames,
    part_frames,
)
from fleetrank.orchestrator.store.parquet.parts import to_frame

KEY = list(ROW_KEY)
HASH = "row_hash"
IS_CHECKED = "is_checked"
PART = "part"
_KEYS = {name: SCHEMA[name] for name in ROW_KEY} | {HASH: pl.UInt64(), IS_CHECKED: pl.Boolean()}


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalIndex:
    """The rows of a journal.

    Attributes:
        rows: one entry per row, in order; a duplicate key counts once, as in the published rows.
        problems: lines that are not rows of this sweep.
        damaged: the packed file, if it cannot be read; its rows are missing here.
    """

    rows: pl.DataFrame
    problems: tuple[JournalProblem, ...]
    damaged: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsIndex:
    """The rows of the parts of a sweep.

    Attributes:
        rows: one entry per row; `part` is the index of its file in `paths`.
        paths: every file.
        damaged: the files that cannot be read.
    """

    rows: pl.DataFrame
    paths: tuple[Path, ...]
    damaged: tuple[Path, ...]


def index_rows(frame: pl.DataFrame, *, is_checked: bool) -> pl.DataFrame:
    """RowKey and hash of each row of a table with exactly the declared columns."""
    hashes = frame.hash_rows(seed=0).alias(HASH)
    return frame.select(KEY).with_columns(hashes, pl.lit(is_checked).alias(IS_CHECKED))


def index_journal(journal: Journal) -> JournalIndex:
    """Reads a whole journal once."""
    found, problems, damaged = [], list[JournalProblem](), None
    if journal.packed_path.exists():
        try:
            found = [index_rows(f, is_checked=True) for f in packed_frames(journal.packed_path)]
        except StoreError:
            damaged = journal.packed_path
    for batch in _batches(journal.lines()):
        problems += [one for one in batch if isinstance(one, JournalProblem)]
        entries = [one for one in batch if isinstance(one, Entry)]
        for is_checked in (True, False):
            frame = to_frame(one.row for one in entries if one.is_checked is is_checked)
            found.append(index_rows(frame, is_checked=is_checked))
    rows = _joined(found).unique(KEY, keep="first", maintain_order=True)
    return JournalIndex(rows=rows, problems=tuple(problems), damaged=damaged)


def index_parts(folder: Path) -> PartsIndex:
    """Reads every part of a sweep once."""
    paths = tuple(sorted(folder.glob(PARTS)))
    found, damaged = [], list[Path]()
    for number, path in enumerate(paths):
        try:
            is_sealed = is_part_sealed(path)
            of_part = []
            for frame in part_frames(path):
                rows = index_rows(frame, is_checked=is_sealed)
                of_part.append(rows.with_columns(pl.lit(number, dtype=pl.Int64).alias(PART)))
            found += of_part
        except StoreError:
            damaged.append(path)
    return PartsIndex(rows=_joined(found, {PART: pl.Int64()}), paths=paths, damaged=tuple(damaged))


def _batches(
    items: Iterable[Entry | JournalProblem],
) -> Iterator[list[Entry | JournalProblem]]:
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, ROWS_AT_ONCE)):
        yield batch


def _joined(found: list[pl.DataFrame], more: dict[str, pl.DataType] | None = None) -> pl.DataFrame:
    return pl.concat([pl.DataFrame(schema=_KEYS | (more or {})), *found])

"""Parquet parts of one sweep, made from its journal.

A part is named after the number of its first row. A part that starts before its predecessor ends is
left over from an interrupted compaction: it holds no new rows and is removed. Rows are only added
and are identified by their keys: rows that the journal has lost stay in the parts.
"""

import io
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, BinaryIO, cast

import polars as pl
from polars.io.plugins import register_io_source

from fleetrank.analysis.stored.columns import ROW_KEY, SCHEMA
from fleetrank.analysis.stored.part_files import OPEN_SEAL, PARTS, SEAL_KEY, close_seal, first_row
from fleetrank.orchestrator.durable import replace_file, replace_file_with
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.identity.keys import RowKey
from fleetrank.orchestrator.rows.measured_columns import Row
from fleetrank.orchestrator.store.parquet.part_reader import (
    STAMPS,
    empty_table,
    part_frames,
    part_height,
    read_part,
)

ROWS_PER_GROUP = 20_000
"""16 MB with 100 samples a row; this is in memory while a large file is written or read."""
FAST, SMALL = 1, 9
"""Levels of zstd; the second takes three times as long for a 5 % smaller file."""


def sealed_parquet(frame: pl.DataFrame) -> bytes:
    """Returns a table as the bytes of a Parquet file with a checksum."""
    buffer = io.BytesIO()
    _write(buffer, frame.lazy(), FAST)
    return buffer.getvalue()


def write_sealed(path: Path, frames: Iterable[pl.DataFrame], *, level: int = FAST) -> None:
    """Writes tables of one schema as one file with a checksum, and replaces the old file.

    Args:
        path: the file.
        frames: at least one; only a few row groups are in memory.
        level: level of zstd.

    Raises:
        StoreError: the disk is full or the folder cannot be written; nothing changed.
    """
    rest = iter(frames)
    first = next(rest)
    rows = register_io_source(lambda *_: itertools.chain([first], rest), schema=first.schema)
    replace_file_with(path, lambda file: _write(file, rows, level))


def _write(file: BinaryIO, rows: pl.LazyFrame, level: int) -> None:
    output = _Output(file)
    try:
        rows.sink_parquet(
            # Polars writes to any object that has these two methods.
            cast("IO[bytes]", output),
            compression="zstd",
            compression_level=level,
            row_group_size=ROWS_PER_GROUP,
            metadata={SEAL_KEY: OPEN_SEAL},
        )
    except pl.exceptions.PolarsError:
        if output.error is not None:
            raise output.error from None
        raise
    close_seal(file)


class _Output:
    """An open file that keeps the error of the system, which Polars turns into a text."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, content: bytes) -> int:
        try:
            return self._file.write(content)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self._file.flush()


ROWS_PER_PART = 2000
"""About 30 MB with 2,000 samples a row: fast to rewrite, and few files for 10^5 rows."""

_DOES_NOT_FIT = (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One Parquet file: rows `start` to `end` (not included) of the sweep."""

    path: Path
    start: int
    end: int


def to_frame(rows: Iterable[Row]) -> pl.DataFrame:
    """Returns rows as a table of exactly the declared columns; missing values are null.

    Raises:
        StoreError: a value does not fit its column.
    """
    records = list(rows)
    if not records:
        return empty_table()
    try:
        return pl.DataFrame([_typed(row) for row in records], schema=SCHEMA)
    except _DOES_NOT_FIT as error:
        keys = [{name: row.get(name) for name in ROW_KEY} for row in records if not fits(row)]
        raise StoreError(
            f"rows of the journal do not fit the table: {keys}: {error}",
            "fix or delete their lines in the journal; the other rows are kept",
        ) from error


def fits(row: Row) -> bool:
    """Whether the values of a row fit their columns."""
    try:
        pl.DataFrame([_typed(row)], schema=SCHEMA)
    except _DOES_NOT_FIT:
        return False
    return True


def _typed(row: Row) -> Row:
    """Returns the declared columns of a row with parsed times; their texts vary in length."""
    record = {name: row.get(name) for name in SCHEMA}
    for name in STAMPS:
        if (text := record[name]) is not None:
            stamp = datetime.fromisoformat(str(text))
            # A time without a zone is UTC, because fleetrank writes only UTC.
            record[name] = stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)
    return record


def publish_parts(folder: Path, rows: Iterable[Row], *, are_new: bool = False) -> int:
    """Writes the rows that are in no part yet; a second run changes nothing.

    Args:
        folder: the folder of the sweep's parts.
        rows: the rows of its journal.
        are_new: whether the rows are known to be in no part, so that no search is needed.

    Returns:
        How many parts were written.

    Raises:
        StoreError: a part is damaged, a row does not fit, or the disk is full.
    """
    parts = _settle(folder)
    new = iter(rows) if are_new else _unpublished(rows, parts)
    n_written = 0
    at = 0
    for part in parts:
        # If a part was lost, its rows are the first missing ones.
        n_written += _write_batches(folder, at, _batches(new, part.start - at))
        at = part.end
    if parts and at - parts[-1].start < ROWS_PER_PART:
        last = parts[-1]
        if more := list(itertools.islice(new, ROWS_PER_PART - (at - last.start))):
            grown = [read_part(last.path), to_frame(more)]
            _write_part(folder, last.start, pl.concat(grown, how="diagonal_relaxed"))
            n_written += 1
            at += len(more)
    return n_written + _write_batches(folder, at, _batches(new, sys.maxsize))


def _unpublished(rows: Iterable[Row], parts: Sequence[Part]) -> Iterator[Row]:
    """Yields the rows whose key is in no part, each once."""
    known = {key for part in parts for key in _keys(part.path)}
    for row in rows:
        key = RowKey.of(row)
        if key not in known:
            known.add(key)
            yield row


def _keys(path: Path) -> Iterator[tuple[object, ...]]:
    return read_part(path, list(ROW_KEY)).iter_rows()


def _batches(rows: Iterator[Row], most: int) -> Iterator[list[Row]]:
    """Yields the rows in batches of at most the size of a part."""
    while batch := list(itertools.islice(rows, min(ROWS_PER_PART, most))):
        yield batch
        most -= len(batch)


def _write_batches(folder: Path, start: int, batches: Iterable[list[Row]]) -> int:
    """Writes each batch as a part, starting at a row number; returns the number of parts."""
    n_written = 0
    for batch in batches:
        _write_part(folder, start, to_frame(batch))
        start += len(batch)
        n_written += 1
    return n_written


def compact_parts(folder: Path) -> int:
    """Merges all parts into one; a crash at any point neither loses nor duplicates a row.

    Returns:
        How many parts there were.
    """
    parts = _settle(folder)
    for left_over in folder.glob(".part-*.tmp"):
        # Left by a writer that was killed; only one process writes.
        left_over.unlink()
    if len(parts) < 2:
        return len(parts)
    if any(part.end != after.start for part, after in itertools.pairwise(parts)):
        raise StoreError(
            f"the parts in {folder} do not follow each other",
            "keep them: they hold rows that the journal has lost, and they can be read",
        )
    frames = itertools.chain.from_iterable(part_frames(part.path) for part in parts)
    write_sealed(parts[0].path, frames)
    _settle(folder)
    return len(parts)


def _settle(folder: Path) -> list[Part]:
    """Returns the parts in order, after removing parts whose rows are in a merged part."""
    parts: list[Part] = []
    for path in sorted(folder.glob(PARTS)):
        start = first_row(path)
        if parts and start < parts[-1].end:
            path.unlink()
            continue
        parts.append(Part(path=path, start=start, end=start + part_height(path)))
    return parts


def to_parquet(frame: pl.DataFrame) -> bytes:
    """Writes a table of any columns as a Parquet file for users.

    The file is built in memory, because the error of Polars does not name a full disk.
    """
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def _write_part(folder: Path, start: int, frame: pl.DataFrame) -> None:
    replace_file(folder / f"part-{start:08d}.parquet", sealed_parquet(frame))

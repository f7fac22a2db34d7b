"""Parquet parts of one sweep, made from its journal.

A part is named after the number of its first row. A part that begins before its predecessor ends
is what a crash left of a compaction: it holds nothing new and is removed.
"""

import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from analysis.columns import SCHEMA
from orchestrator.errors import StoreError
from orchestrator.store.durable import replace_file
from orchestrator.translate import Row

ROWS_PER_PART = 2000
"""About 30 MB with 2,000 samples a row: quick to rewrite, few enough files for 10^5 rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One Parquet file: rows `start` to `end` (not included) of the sweep."""

    path: Path
    start: int
    end: int


def to_frame(rows: Iterable[Row]) -> pl.DataFrame:
    """Rows as a table of exactly the declared columns; what a row lacks is null.

    Raises:
        StoreError: a value does not fit its column.
    """
    stamps = [name for name, dtype in SCHEMA.items() if isinstance(dtype, pl.Datetime)]
    as_text = {name: pl.String() if name in stamps else dtype for name, dtype in SCHEMA.items()}
    records = [{name: row.get(name) for name in SCHEMA} for row in rows]
    try:
        frame = pl.DataFrame(records, schema=as_text)
        return frame.with_columns(
            pl.col(name).str.to_datetime(time_unit="us", time_zone="UTC") for name in stamps
        )
    except (pl.exceptions.PolarsError, TypeError, OverflowError) as error:
        raise StoreError(
            f"a journal row does not fit the table: {error}",
            "mend or delete that line of the journal; the other rows are kept",
        ) from error


def publish_parts(folder: Path, rows: Iterator[Row]) -> int:
    """Writes the rows that no full part holds yet; running it again changes nothing.

    Returns:
        How many parts were written.
    """
    parts = _settle(folder)
    start = _first_unpublished(parts)
    published = parts[-1].end if parts else 0
    n_written = 0
    fresh = itertools.islice(rows, start, None)
    while batch := list(itertools.islice(fresh, ROWS_PER_PART)):
        end = start + len(batch)
        if end > published:
            _write_part(folder, start, to_frame(batch))
            n_written += 1
        start = end
    return n_written


def compact_parts(folder: Path) -> int:
    """Merges all parts into one; a crash at any point loses and doubles nothing.

    Returns:
        How many parts there were.
    """
    parts = _settle(folder)
    for left_over in folder.glob(".part-*.tmp"):
        # Of a writer that was killed; only one writes at a time.
        left_over.unlink()
    if len(parts) < 2:
        return len(parts)
    merged = pl.concat([pl.read_parquet(part.path, hive_partitioning=False) for part in parts])
    if merged.height != parts[-1].end - parts[0].start:
        raise StoreError(
            f"the parts in {folder} do not follow each other",
            "delete them and run `fleetrank results compact` again: the journal has every row",
        )
    _write_part(folder, parts[0].start, merged)
    _settle(folder)
    return len(parts)


def scan_parts(folders: Sequence[Path]) -> pl.LazyFrame:
    """The rows of several sweeps, with exactly the declared columns; none is an empty table."""
    paths = [path for folder in folders for path in sorted(folder.glob("part-*.parquet"))]
    scans = [pl.scan_parquet(path, hive_partitioning=False) for path in paths]
    # The empty table first: a column that an older part lacks becomes null.
    empty = pl.LazyFrame(schema=SCHEMA)
    return pl.concat([empty, *scans], how="diagonal_relaxed").select(*SCHEMA)


def read_rows(folder: Path) -> Iterator[Row]:
    """The published rows of one sweep, one part in memory at a time."""
    for path in sorted(folder.glob("part-*.parquet")):
        yield from pl.read_parquet(path, hive_partitioning=False).iter_rows(named=True)


def repeat_seconds(folders: Sequence[Path]) -> dict[str, float]:
    """How long one good repeat of each cell took on average, by cell key."""
    took = (pl.col("finished_utc") - pl.col("started_utc")).dt.total_microseconds() / 1e6
    rows = (
        scan_parts(folders)
        .filter(pl.col("status") == "ok")
        .group_by("cell_key")
        .agg(took.mean().alias("seconds"))
        .drop_nulls()
        .collect()
    )
    return dict(rows.iter_rows())


def _first_unpublished(parts: list[Part]) -> int:
    """The row to go on from: the start of the last part while that still has room."""
    if not parts:
        return 0
    last = parts[-1]
    return last.start if last.end - last.start < ROWS_PER_PART else last.end


def _settle(folder: Path) -> list[Part]:
    """The parts in order, after removing those that a merged one holds."""
    parts: list[Part] = []
    for path in sorted(folder.glob("part-*.parquet")):
        start = int(path.stem.removeprefix("part-"))
        if parts and start < parts[-1].end:
            path.unlink()
            continue
        height = pl.scan_parquet(path, hive_partitioning=False).select(pl.len()).collect().item()
        parts.append(Part(path=path, start=start, end=start + height))
    return parts


def to_parquet(frame: pl.DataFrame) -> bytes:
    """The table as a Parquet file.

    In memory, since Polars answers a full disk with an error that does not say so.
    """
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def _write_part(folder: Path, start: int, frame: pl.DataFrame) -> None:
    replace_file(folder / f"part-{start:08d}.parquet", to_parquet(frame))

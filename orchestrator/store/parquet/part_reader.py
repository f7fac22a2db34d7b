"""Reads Parquet parts and packed journals after checking their checksums."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path

import polars as pl

from fleetrank.analysis.errors import DamagedPartError
from fleetrank.analysis.stored.columns import SCHEMA
from fleetrank.analysis.stored.part_files import (
    PARTS,
    UNREADABLE,
    damage_error,
    damaged_part,
    part_files,
    require_seal,
    require_whole,
    row_batches,
    row_count,
    what_is_wrong,
)
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.rows.measured_columns import Row

STAMPS = tuple(name for name, dtype in SCHEMA.items() if isinstance(dtype, pl.Datetime))


def read_sweeps(folders: Sequence[Path]) -> pl.DataFrame:
    """Returns the rows of several sweeps, with exactly the declared columns; can be empty.

    Raises:
        StoreError: a part is damaged.
    """
    paths = _parts_of(folders)
    return _collect(_scan(paths), paths)


def read_rows(folder: Path) -> Iterator[Row]:
    """Yields the published rows of one sweep in small batches.

    Raises:
        StoreError: a part is damaged.
    """
    for path in sorted(folder.glob(PARTS)):
        for frame in part_frames(path):
            yield from frame.iter_rows(named=True)


def part_frames(path: Path, columns: Sequence[str] = tuple(SCHEMA)) -> Iterator[pl.DataFrame]:
    """Yields the rows of one part in order, with exactly these columns, in small batches.

    Raises:
        StoreError: the file is damaged.
    """
    is_part_sealed(path)
    try:
        yield from _frames(path, columns)
    except UNREADABLE as error:
        raise damaged(path) from error


def is_part_sealed(path: Path) -> bool:
    """Compares a part with its checksum; returns whether it has one.

    Raises:
        StoreError: the content does not match the checksum.
    """
    try:
        return require_whole(path)
    except DamagedPartError as error:
        raise damaged(path) from error


def packed_frames(path: Path) -> Iterator[pl.DataFrame]:
    """Yields the rows of a packed journal in small batches.

    Raises:
        StoreError: the file is damaged.
    """
    try:
        require_seal(path)
        yield from _frames(path, tuple(SCHEMA))
    except UNREADABLE as error:
        raise StoreError(
            what_is_wrong(path),
            "`fleetrank results verify` with `repair=true` keeps the damaged file under another "
            "name, and rebuilds it from the Parquet parts",
        ) from error


def read_packed(path: Path) -> Iterator[Row]:
    """Yields the rows of a packed journal in the form of lines; raises like `packed_frames`."""
    for frame in packed_frames(path):
        yield from journal_rows(frame)


def journal_rows(frame: pl.DataFrame) -> Iterator[Row]:
    """Yields the rows of a table in the form of journal lines: times are text."""
    for row in frame.iter_rows(named=True):
        for name in STAMPS:
            if isinstance(stamp := row[name], datetime):
                row[name] = stamp.isoformat()
        yield row


@cache
def empty_table(columns: tuple[str, ...] = tuple(SCHEMA)) -> pl.DataFrame:
    """Returns a table of exactly these columns; to make one takes longer than to read a part."""
    return pl.DataFrame(schema={name: SCHEMA[name] for name in columns})


def repeat_seconds(folders: Sequence[Path]) -> dict[str, float]:
    """Returns by cell key the mean duration of a valid repeat.

    Raises:
        StoreError: a part is damaged.
    """
    took = (pl.col("finished_utc") - pl.col("started_utc")).dt.total_microseconds() / 1e6
    paths = _parts_of(folders)
    good = _scan(paths).filter(pl.col("status") == "ok")
    means = good.group_by("cell_key").agg(took.mean()).drop_nulls()
    return dict(_collect(means, paths).iter_rows())


def read_part(path: Path, columns: list[str] | None = None) -> pl.DataFrame:
    """Returns one part as it is stored.

    Raises:
        StoreError: the file is damaged.
    """
    is_part_sealed(path)
    try:
        return pl.read_parquet(path, columns=columns, hive_partitioning=False)
    except UNREADABLE as error:
        raise damaged(path) from error


def part_height(path: Path) -> int:
    """Returns the number of rows of a part; raises like `read_part`."""
    is_part_sealed(path)
    try:
        return row_count(path)
    except UNREADABLE as error:
        raise damaged(path) from error


def damaged(path: Path) -> StoreError:
    """Returns the error that names a damaged part."""
    damage = damage_error(path)
    return StoreError(damage.message, damage.remedy)


def _parts_of(folders: Sequence[Path]) -> list[Path]:
    try:
        return [path for folder in folders for path in part_files(folder)]
    except DamagedPartError as error:
        raise StoreError(error.message, error.remedy) from error


def _scan(paths: Sequence[Path]) -> pl.LazyFrame:
    scans = [pl.scan_parquet(path, hive_partitioning=False) for path in paths]
    # The empty table is first, so that a column that an older part lacks becomes null.
    return pl.concat([empty_table().lazy(), *scans], how="diagonal_relaxed").select(*SCHEMA)


def _collect(frame: pl.LazyFrame, paths: Iterable[Path]) -> pl.DataFrame:
    try:
        return frame.collect()
    except UNREADABLE as error:
        found = damaged_part(paths)
        if found is not None:
            raise damaged(found) from error
        raise StoreError(
            f"the Parquet parts cannot be read: {error}", "run `fleetrank results verify`"
        ) from error


def _frames(path: Path, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    empty = empty_table(tuple(columns))
    for frame in row_batches(path, columns):
        yield pl.concat([empty, frame], how="diagonal_relaxed")

"""Writes tables as Parquet files with checksums of each page and of the whole file."""

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import polars as pl

from fleetrank.analysis.stored.part_files import OPEN_SEAL, SEAL_KEY, close_seal
from fleetrank.orchestrator.durable import replace_file_with

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_GROUP = 20_000
"""16 MB with 100 samples a row; this is in memory while a large file is written or read."""
FAST, SMALL = 1, 9
"""Levels of zstd; the second takes three times as long for a 5 % smaller file."""


def sealed_parquet(frame: pl.DataFrame) -> bytes:
    """Returns a table as the bytes of a Parquet file with checksums."""
    buffer = io.BytesIO()
    _write(buffer, [frame], FAST)
    return buffer.getvalue()


def write_sealed(path: Path, frames: Iterable[pl.DataFrame], *, level: int = FAST) -> None:
    """Writes tables of one schema as one file with checksums, and replaces the old file.

    Args:
        path: the file.
        frames: at least one; only one row group is in memory.
        level: level of zstd.

    Raises:
        StoreError: the disk is full or the folder cannot be written; nothing changed.
    """
    replace_file_with(path, lambda file: _write(file, frames, level))


def _write(file: BinaryIO, frames: Iterable[pl.DataFrame], level: int) -> None:
    import pyarrow.parquet as pq

    groups = _groups(frames)
    first = next(groups)
    table = _to_arrow(first)
    # Samples and times rarely repeat: differences need less space than a dictionary.
    distinct = {_leaf(name, dtype) for name, dtype in first.schema.items() if _is_unlike(dtype)}
    every = {_leaf(name, dtype) for name, dtype in first.schema.items()}
    with pq.ParquetWriter(
        file,
        table.schema,
        compression="zstd",
        compression_level=level,
        write_page_checksum=True,
        use_dictionary=sorted(every - distinct),
        column_encoding=dict.fromkeys(distinct, "DELTA_BINARY_PACKED"),
    ) as writer:
        writer.add_key_value_metadata({SEAL_KEY: OPEN_SEAL})
        writer.write_table(table)
        for frame in groups:
            writer.write_table(_to_arrow(frame))
    close_seal(file)


def _groups(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yields the same rows in tables of the size of a row group."""
    waiting: list[pl.DataFrame] = []
    for frame in frames:
        waiting.append(frame)
        if sum(one.height for one in waiting) >= ROWS_PER_GROUP:
            yield pl.concat(waiting)
            waiting = []
    if waiting:
        yield pl.concat(waiting)


def _to_arrow(frame: pl.DataFrame) -> "pa.Table":
    # Every Parquet reader supports the oldest types.
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _is_unlike(dtype: pl.DataType) -> bool:
    return dtype == pl.List(pl.Int64) or isinstance(dtype, pl.Datetime)


def _leaf(name: str, dtype: pl.DataType) -> str:
    """Returns the name that Parquet uses for a column's values."""
    return f"{name}.list.element" if isinstance(dtype, pl.List) else name

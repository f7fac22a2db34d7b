"""Streams the rows of a query into a file; only a small part of them is in memory."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from fleetrank.analysis.errors import QueryError
from fleetrank.analysis.sql.sql_values import rows_of
from fleetrank.foundation.strict_json import count_not_finite, json_text
from fleetrank.orchestrator.compute.jobs import RowForm

Frames = Iterable[pl.DataFrame]
Row = dict[str, object]

_GROUP_BYTES = 64 << 20
"""Size of a Parquet row group in memory; a reader loads one row group at a time."""
_JSON_ROWS = 100
"""Number of rows converted to text together; with 10,000 samples a row they take 10 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The outcome of writing a query's rows.

    Attributes:
        is_cut: whether more rows existed than were written.
        n_not_finite: number of NaN and infinite floats; JSON cannot hold them, so they are null.
    """

    is_cut: bool
    n_not_finite: int


def write_rows(frames: Frames, path: Path, form: RowForm, max_rows: int) -> Written:
    """Writes at most `max_rows` rows; further rows of the frames are not written.

    Raises:
        QueryError: the format cannot hold a value or a column.
        OSError: the file cannot be written.
    """
    heights: list[int] = []
    with path.open("wb") as file:
        n_not_finite = _WRITERS[form](_first(frames, max_rows, heights), file)
    return Written(is_cut=sum(heights) > max_rows, n_not_finite=n_not_finite)


def _first(frames: Frames, max_rows: int, heights: list[int]) -> Frames:
    """Yields the frames up to a maximum row; counts the rows of each."""
    for frame in frames:
        yield frame.head(max_rows - sum(heights))
        heights.append(frame.height)


def _write_json(frames: Frames, file: BinaryIO) -> int:
    """A list of objects, indented by two."""
    n_not_finite, before = 0, b"[\n"
    for rows in _groups(chain.from_iterable(map(rows_of, frames))):
        # Without the brackets of this part of the list.
        file.write(before + json_text(rows, indent=2)[2:-2].encode())
        n_not_finite += count_not_finite([list(row.values()) for row in rows])
        before = b",\n"
    file.write(b"[]\n" if before == b"[\n" else b"\n]\n")
    return n_not_finite


def _write_table(frames: Frames, file: BinaryIO) -> int:
    """Writes JSON for the process that prints it: text where JSON cannot hold a value."""
    rows = [_shown(row) for frame in frames for row in rows_of(frame)]
    file.write(json_text(rows).encode())
    return 0


def _write_csv(frames: Frames, file: BinaryIO) -> int:
    """Writes a header and the rows; nested values are JSON."""
    n_not_finite = 0
    with io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True) as text:
        writer = csv.writer(text, lineterminator="\n")
        for number, frame in enumerate(frames):
            if number == 0:
                writer.writerow(frame.columns)
            for row in rows_of(frame):
                nested = [value for value in row.values() if isinstance(value, list | dict)]
                n_not_finite += count_not_finite(nested)
                writer.writerow(
                    json_text(value) if isinstance(value, list | dict) else value
                    for value in row.values()
                )
    return n_not_finite


def _write_parquet(frames: Frames, file: BinaryIO) -> int:
    try:
        tables = (frame.to_arrow(compat_level=pl.CompatLevel.oldest()) for frame in frames)
        first = next(tables)
        with pq.ParquetWriter(
            file, first.schema, compression="zstd", write_page_checksum=True
        ) as writer:
            for group in _row_groups(chain([first], tables)):
                writer.write_table(group)
    except pa.ArrowException as error:
        raise QueryError(
            f"a column does not fit into Parquet: {error}", "cast it to VARCHAR"
        ) from error
    return 0


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(one.nbytes for one in waiting) >= _GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting.clear()
    if waiting:
        yield pa.concat_tables(waiting)


def _groups(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while group := list(islice(rows, _JSON_ROWS)):
        yield group


def _shown(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): _shown(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_shown(part) for part in value]
    return value


_WRITERS: Mapping[RowForm, Callable[[Frames, BinaryIO], int]] = {
    RowForm.JSON: _write_json,
    RowForm.TABLE: _write_table,
    RowForm.CSV: _write_csv,
    RowForm.PARQUET: _write_parquet,
}

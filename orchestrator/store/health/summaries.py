"""Checks that the stored summaries of a row agree with its samples."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from fleetrank.orchestrator.rows.measured_columns import Row, summarise
from fleetrank.orchestrator.store.journals.row_index import KEY, Key, PartsIndex, row_key, row_name
from fleetrank.orchestrator.store.parquet.part_reader import part_frames

_COLUMNS = [*KEY, "samples_ns", *summarise([1])]

_TOLERANCE = 1e-9
"""Sums in another order differ by about 1e-16; an edited figure differs much more."""


def wrong_summaries(row: Mapping[str, object]) -> Iterator[str]:
    """Yields the summaries of a row that its samples contradict."""
    samples = row["samples_ns"]
    if not isinstance(samples, list):
        return
    for name, expected in summarise(samples).items():
        stored = row[name]
        if not _is_equal(stored, expected):
            yield f"{row_name(row)}: {name} is {stored}, its samples give {expected}"


def contradictions(parts: PartsIndex) -> dict[Key, list[str]]:
    """Returns by row key the summaries that the row's samples contradict."""
    found = {}
    for path in parts.paths:
        for row in () if path in parts.damaged else _sampled(path):
            if wrong := list(wrong_summaries(row)):
                found[row_key(row)] = wrong
    return found


def _sampled(path: Path) -> Iterator[Row]:
    for frame in part_frames(path, _COLUMNS):
        yield from frame.filter(pl.col("samples_ns").is_not_null()).iter_rows(named=True)


def _is_equal(stored: object, expected: float | None) -> bool:
    if expected is None or not isinstance(stored, int | float):
        return stored is expected
    return math.isclose(stored, expected, rel_tol=_TOLERANCE)

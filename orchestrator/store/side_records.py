"""Writes rows of side tables; `analysis/stored/side` says what they are and reads them."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from fleetrank.analysis.stored.columns import SCHEMA_VERSION
from fleetrank.analysis.stored.schema.column import Column
from fleetrank.analysis.stored.side.side_registry import SIDE_TABLES
from fleetrank.analysis.stored.side.side_table import SWEEP_ID, SideTable, side_files, side_folder
from fleetrank.orchestrator.durable import replace_file, store_error
from fleetrank.orchestrator.store.small_files import write_checked_object


def append_side(
    results: Path,
    table: SideTable,
    rows: Sequence[Mapping[str, object]],
    *,
    sweep_id: str | None = None,
) -> Path:
    """Stores rows as one new file; readers see all of them or no row.

    Args:
        results: the results folder of a workspace.
        table: the side table.
        rows: at least one; a declared column that a row lacks becomes null.
        sweep_id: the sweep that the rows belong to; `None` without a sweep.

    Returns:
        The file.

    Raises:
        ValueError: a row is missing, a column is not declared, or a value does not fit its column.
        StoreError: the disk is full or the folder cannot be written; nothing is stored.
    """
    from fleetrank.orchestrator.store.parquet.parts import sealed_parquet

    content = sealed_parquet(_frame(table, rows, sweep_id))
    if not (mark := results / "schema.json").exists():
        write_checked_object(mark, {"schema_version": SCHEMA_VERSION})
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    # With the digest, two processes cannot choose one name for unlike rows.
    name = f"{stamp}-{hashlib.sha256(content).hexdigest()[:12]}.parquet"
    path = side_folder(results, table.name, sweep_id) / name
    replace_file(path, content)
    return path


def _frame(
    table: SideTable, rows: Sequence[Mapping[str, object]], sweep_id: str | None
) -> pl.DataFrame:
    if not rows:
        raise ValueError(f"no row to store in {table.name}")
    names = set(table.schema)
    if unknown := sorted({name for row in rows for name in row} - names):
        raise ValueError(f"{table.name} has no columns {unknown}")
    for one in table.columns:
        allowed = {None, *(one.values or ())}
        if one.values and (wrong := {row.get(one.name) for row in rows} - allowed):
            raise ValueError(f"{one.name} cannot be {sorted(map(str, wrong))}")
    records = [{**row, SWEEP_ID.name: sweep_id} for row in rows]
    return pl.DataFrame(
        [_series(one, [row.get(one.name) for row in records]) for one in table.columns]
    )


def _series(column: Column, values: Sequence[object]) -> pl.Series:
    try:
        return pl.Series(column.name, values, dtype=column.dtype, strict=True)
    except (pl.exceptions.PolarsError, TypeError, OverflowError) as error:
        raise ValueError(f"a value of {column.name} does not fit: {error}") from error


def side_folders_of(results: Path, sweep_id: str) -> list[Path]:
    """The folders with the rows of one sweep in any side table, also an unknown one."""
    return sorted((results / "side").glob(f"*/sweep_id={sweep_id}"))


def missing_side_files(results: Path, other: Path) -> list[Path]:
    """The files of rows without a sweep that another results folder has and this one lacks.

    Files are never changed and their names contain a digest, so equal names are equal rows.
    """
    return [
        path
        for name in SIDE_TABLES
        for path in side_files(other, name)
        if path.parent == side_folder(other, name)
        and not (side_folder(results, name) / path.name).exists()
    ]


def copy_side_rows(results: Path, other: Path) -> int:
    """Copies the files of `missing_side_files`; returns how many.

    Raises:
        StoreError: a file cannot be read or written.
    """
    missing = missing_side_files(results, other)
    for path in missing:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise store_error(path, error) from error
        replace_file(results / path.relative_to(other), content)
    return len(missing)

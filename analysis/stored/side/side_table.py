"""Side tables: stored results that are not measurements of a cell, such as evaluations.

A side table is a folder `results/side/NAME`. Each file in it holds the rows of one call of
`append_side`; it has a checksum and is never changed. The rows of a sweep lie in a folder
`sweep_id=ID`, so that they are deleted and copied with their sweep.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fleetrank.analysis.errors import DamagedPartError
from fleetrank.analysis.stored.part_files import UNREADABLE, is_pending, require_seal
from fleetrank.analysis.stored.schema.column import STR, Column, column

SWEEP_ID = column("sweep_id", STR, "sweep that the row belongs to; null without a sweep")


@dataclass(frozen=True, slots=True, kw_only=True)
class SideTable:
    """One kind of stored results beside the measurements.

    Attributes:
        name: of its folder, of its view for SQL, and of `results export --table`.
        doc: one sentence about its rows.
        own: its columns after `sweep_id`, which every side table has.
        remedy: what a user does about a file that is damaged; there is one copy of it.
    """

    name: str
    doc: str
    own: tuple[Column, ...]
    remedy: str

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns in their order."""
        return (SWEEP_ID, *self.own)

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """Name and type of every column."""
        return {one.name: one.dtype for one in self.columns}


def side_folder(results: Path, name: str, sweep_id: str | None = None) -> Path:
    """The folder of the rows of one sweep, or of the rows without a sweep."""
    folder = results / "side" / name
    return folder if sweep_id is None else folder / f"sweep_id={sweep_id}"


def side_files(results: Path, name: str) -> list[Path]:
    """The files of a side table in the order of their names, without those of hidden sweeps."""
    folder = side_folder(results, name)
    found = [*folder.glob("[!.]*.parquet"), *folder.glob("sweep_id=*/[!.]*.parquet")]
    shown = (path for path in found if not is_pending(results, _sweep_of(path)))
    return sorted(shown, key=lambda path: (path.name, str(path)))


def has_side_rows(results: Path) -> bool:
    """Whether any side table has a file, also one of a hidden sweep."""
    return any((results / "side").glob("**/[!.]*.parquet"))


def _sweep_of(path: Path) -> str:
    return path.parent.name.partition("=")[2]


def read_side(results: Path, table: SideTable, *, sweeps: Sequence[str] = ()) -> pl.DataFrame:
    """Reads the rows of a side table, oldest file first, with exactly its columns.

    Args:
        results: the results folder of a workspace.
        table: the side table.
        sweeps: only the rows of these sweeps; empty reads all rows.

    Returns:
        The rows; a column that an older file lacks is null; empty if nothing is stored.

    Raises:
        DamagedPartError: a file does not match its checksum, or its types are wrong.
    """
    files = side_files(results, table.name)
    chosen = [path for path in files if not sweeps or _sweep_of(path) in sweeps]
    empty = pl.DataFrame(schema=table.schema)
    return pl.concat([empty, *(read_side_file(path, table) for path in chosen)])


def read_side_file(path: Path, table: SideTable) -> pl.DataFrame:
    """Reads one file of a side table after checking its checksum; raises like `read_side`."""
    try:
        require_seal(path)
        stored = pl.read_parquet(path, hive_partitioning=False)
        empty = pl.DataFrame(schema=table.schema)
        return pl.concat([empty, stored], how="diagonal").select(*table.schema)
    except UNREADABLE as error:
        raise DamagedPartError(f"{path} is damaged", table.remedy) from error


def damaged_side_files(
    results: Path, tables: Mapping[str, SideTable]
) -> Iterator[DamagedPartError]:
    """Yields an error for each file of these side tables that cannot be read."""
    for name, table in tables.items():
        for path in side_files(results, name):
            try:
                read_side_file(path, table)
            except DamagedPartError as error:
                yield error

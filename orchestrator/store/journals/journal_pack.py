"""Packs the journal of a finished sweep into a Parquet file, a tenth of the size.

Each row is stored twice, in the parts and in the packed journal, each with a checksum, so that
either copy can be rebuilt from the other. The lines are removed after the packed file was read back
from the disk and every row was equal to its row in the parts.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from fleetrank.analysis.stored.columns import SCHEMA
from fleetrank.analysis.stored.part_files import ROWS_AT_ONCE
from fleetrank.orchestrator.durable import store_error, sync_folder
from fleetrank.orchestrator.rows.measured_columns import Row
from fleetrank.orchestrator.store.journals.journal import Journal, JournalProblem
from fleetrank.orchestrator.store.journals.row_index import HASH, KEY, index_parts, index_rows
from fleetrank.orchestrator.store.parquet.part_reader import packed_frames
from fleetrank.orchestrator.store.parquet.parts import SMALL, to_frame, write_sealed


class _NotTheTableError(Exception):
    """A line is damaged, or has columns that a Parquet file of the table cannot hold."""


WORTH_PACKING_BYTES = 1 << 20
"""A smaller journal stays as lines, because a Parquet footer alone has 25 kB."""


def pack_journal(journal: Journal, parts: Path) -> bool:
    """Packs the lines of a journal; a kill at any point neither loses nor duplicates a row.

    A journal stays unchanged if it has a damaged line, rows with other columns, or a row that the
    parts lack or hold with other values. `results verify` reports the reason.

    Args:
        journal: of a sweep that no other process writes.
        parts: the folder of its published rows.

    Returns:
        Whether the journal is packed now; a small one is not.

    Raises:
        StoreError: the disk is full; the lines are still there.
    """
    if journal.size_bytes < WORTH_PACKING_BYTES:
        return False
    aside = journal.packed_path.with_name(f".{journal.packed_path.stem}.packing")
    try:
        if not _is_written(aside, journal, parts):
            return False
        aside.replace(journal.packed_path)
        sync_folder(journal.path.parent)
        journal.path.unlink()
        sync_folder(journal.path.parent)
    except OSError as error:
        raise store_error(journal.path, error) from error
    finally:
        aside.unlink(missing_ok=True)
    return True


def _is_written(aside: Path, journal: Journal, parts: Path) -> bool:
    """Writes the packed file, reads it back, and compares it with the lines and with the parts."""
    from_lines: list[pl.DataFrame] = []

    def frames() -> Iterator[pl.DataFrame]:
        rows = _whole_rows(journal)
        while batch := list(itertools.islice(rows, ROWS_AT_ONCE)):
            frame = to_frame(batch)
            from_lines.append(index_rows(frame, is_checked=True))
            yield frame

    try:
        write_sealed(aside, frames(), level=SMALL)
    except _NotTheTableError:
        return False
    packed = pl.concat([index_rows(frame, is_checked=True) for frame in packed_frames(aside)])
    published = index_parts(parts)
    return packed.equals(pl.concat(from_lines)) and _has_each_once(published.rows, packed)


def _whole_rows(journal: Journal) -> Iterator[Row]:
    for item in journal.scan():
        if isinstance(item, JournalProblem) or item.row.keys() != SCHEMA.keys():
            raise _NotTheTableError
        yield item.row


def _has_each_once(published: pl.DataFrame, packed: pl.DataFrame) -> bool:
    same = packed.join(published, on=[*KEY, HASH], how="inner")
    return published.height == packed.height == same.height

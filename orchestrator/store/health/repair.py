"""Rebuilds a damaged part from the journal, and a damaged journal from the parts.

A damaged file is not deleted: it is renamed, so that readers skip it and a person can examine it.
If both sides are damaged, both stay unchanged.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from fleetrank.analysis.stored.part_files import PARTS, damaged_part
from fleetrank.orchestrator.durable import replace_file_with, store_error, sync_folder
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.identity.keys import RowKey
from fleetrank.orchestrator.rows.measured_columns import Row
from fleetrank.orchestrator.store.health.differences import Side
from fleetrank.orchestrator.store.health.verify import KEEP_BOTH, Examined, examine
from fleetrank.orchestrator.store.journals.journal import Journal
from fleetrank.orchestrator.store.journals.journal_line import Entry, make_line
from fleetrank.orchestrator.store.parquet.part_reader import journal_rows, part_frames
from fleetrank.orchestrator.store.results import ResultStore


def repair_sweep(store: ResultStore, sweep_id: str) -> list[str]:
    """Repairs each damaged file that has an undamaged copy; the caller holds the sweep's lease.

    Returns:
        What was done, one sentence per file; empty if nothing could or had to be repaired.

    Raises:
        StoreError: the disk is full, or a file cannot be renamed; no row is lost.
    """
    found = examine(store, sweep_id)
    return _repair_parts(store, sweep_id, found) or _repair_journal(store, sweep_id, found)


def require_whole_parts(store: ResultStore, sweep_id: str) -> list[str]:
    """Does the same as `repair_sweep`, only for parts that cannot be read.

    Raises:
        StoreError: a part and the journal are damaged; or the errors of `repair_sweep`.
    """
    folder = store.parts_folder(sweep_id)
    if damaged_part(sorted(folder.glob(PARTS))) is None:
        return []
    done = _repair_parts(store, sweep_id, examine(store, sweep_id))
    if (left := damaged_part(sorted(folder.glob(PARTS)))) is not None:
        raise StoreError(f"{left} is damaged", KEEP_BOTH)
    return done


def _repair_parts(store: ResultStore, sweep_id: str, found: Examined) -> list[str]:
    """Needs an undamaged journal: a damaged one can lack the rows of the part, too."""
    wrong = {one.part for one in found.differing if one.wrong is Side.PARTS}
    bad = sorted({*found.parts.damaged, *wrong})
    if not bad or found.is_journal_damaged:
        return []
    done = []
    for path in bad:
        kept = _name_aside(path)
        try:
            path.rename(kept)
        except OSError as error:
            raise store_error(path, error) from error
        done.append(f"{path.name} is made again from the journal; the damaged one is {kept}")
    store.publish(sweep_id)
    return done


def _repair_journal(store: ResultStore, sweep_id: str, found: Examined) -> list[str]:
    """Needs undamaged parts; damaged lines that were not published are lost and are reported."""
    wrong = {one.key for one in found.differing if one.wrong is Side.JOURNAL}
    if found.parts.damaged or not (found.is_journal_damaged or wrong):
        return []
    journal = store.open_journal(sweep_id)
    kept = [_keep(path) for path in (journal.path, found.journal.damaged) if path and path.exists()]
    n_rows = 0

    def lines() -> Iterator[bytes]:
        nonlocal n_rows
        for row in _rows(journal, found, wrong):
            n_rows += 1
            yield make_line(row)

    replace_file_with(journal.path, lambda file: file.writelines(lines()))
    if found.journal.damaged is not None:
        _remove(found.journal.damaged)
    names = ", ".join(str(path) for path in kept)
    return [f"{journal.path.name} is written again with {n_rows:,} rows; the damaged is {names}"]


def _rows(journal: Journal, found: Examined, wrong: set[RowKey]) -> Iterator[Row]:
    """Yields the undamaged rows of the journal, then the rows that only the parts have."""
    entries = journal.lines() if found.journal.damaged else journal.scan()
    known: set[RowKey] = set()
    for entry in entries:
        if isinstance(entry, Entry) and (key := RowKey.of(entry.row)) not in wrong | known:
            known.add(key)
            yield entry.row
    for path in found.parts.paths:
        for frame in part_frames(path):
            for row in journal_rows(frame):
                if (key := RowKey.of(row)) not in known:
                    known.add(key)
                    yield row


def _keep(path: Path) -> Path:
    """Gives a second name to a file that will be replaced."""
    kept = _name_aside(path)
    try:
        os.link(path, kept)
        sync_folder(path.parent)
    except OSError as error:
        raise store_error(kept, error) from error
    return kept


def _remove(path: Path) -> None:
    try:
        path.unlink()
        sync_folder(path.parent)
    except OSError as error:
        raise store_error(path, error) from error


def _name_aside(path: Path) -> Path:
    """Returns a free name that readers ignore."""
    numbers = ("", *(f"-{number}" for number in range(2, 1000)))
    names = (path.with_name(f"{path.name}.damaged{number}") for number in numbers)
    return next(name for name in names if not name.exists())

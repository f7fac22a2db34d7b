"""What deleting and copying need of one sweep: its rows, its size on disk, and its marker.

The marker hides a sweep that is being removed or copied from readers. When this one file is made or
removed, the sweep disappears or appears for all readers at once. A process that is killed leaves
the marker, and the next run continues.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fleetrank.analysis.stored.exclusions import read_exclusions
from fleetrank.analysis.stored.part_files import pending_path, what_is_wrong
from fleetrank.orchestrator.durable import replace_file, store_error, sync_folder
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.store.results import ResultStore


class Operation(StrEnum):
    """What is being done to a sweep."""

    DELETE = "delete"
    MERGE = "merge"


def mark(store: ResultStore, sweep_id: str, operation: Operation) -> None:
    """Hides a sweep from every reader, also after a crash.

    Raises:
        StoreError: it cannot be written; nothing changed.
    """
    content = json.dumps({"operation": operation.value})
    replace_file(pending_path(store.root, sweep_id), content.encode())


def unmark(store: ResultStore, sweep_id: str) -> None:
    """Removes the marker; readers then see the files on the disk."""
    path = pending_path(store.root, sweep_id)
    try:
        path.unlink(missing_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        raise store_error(path, error) from error


def operation_of(store: ResultStore, sweep_id: str) -> Operation | None:
    """Returns what is being done to a sweep or was interrupted; `None` for most sweeps.

    Raises:
        StoreError: the marker is damaged.
    """
    path = pending_path(store.root, sweep_id)
    try:
        return Operation(json.loads(path.read_text(encoding="utf-8"))["operation"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{path} is damaged: {error}", f"delete it; then sweep {sweep_id} is visible again"
        ) from error


def left_over(store: ResultStore, operation: Operation) -> Iterator[str]:
    """Returns the sweeps with this marker."""
    for path in sorted((store.root / "sweeps").glob("*.pending")):
        if operation_of(store, path.stem) is operation:
            yield path.stem


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The rows of a sweep, each once, from its journal and its parts.

    Attributes:
        digest: equal for equal rows, in any order and in any files.
        n_wrong: lines of the journal whose row is of another sweep, or does not fit the table.
    """

    n_rows: int
    digest: int
    n_wrong: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The disk space of a sweep, and the exclusions that refer to it."""

    n_bytes: int
    n_raw_logs: int
    exclusions: tuple[int, ...]


def content_of(store: ResultStore, sweep_id: str) -> Content:
    """Reads every row of a sweep, including rows that only its parts have.

    Raises:
        StoreError: a part or the packed journal is damaged, or a newer fleetrank wrote the rows.
    """
    # Importing Polars takes 0.2 s, and a deletion of nothing does not need it.
    import polars as pl

    from fleetrank.orchestrator.store.journals.row_index import (
        HASH,
        KEY,
        index_journal,
        index_parts,
    )

    journal = index_journal(store.open_journal(sweep_id))
    parts = index_parts(store.parts_folder(sweep_id))
    for path in (*parts.damaged, *filter(None, [journal.damaged])):
        raise StoreError(
            what_is_wrong(path), "`fleetrank results verify` with `repair=true` restores it"
        )
    # Both sides as rows of the table: a journal has times as text, and parts do not.
    rows = pl.concat([journal.rows, parts.rows], how="diagonal").unique(KEY, keep="first")
    return Content(
        n_rows=rows.height,
        # A sum does not depend on the order, and equal rows do not cancel each other.
        digest=int(rows[HASH].sum()),
        n_wrong=sum(problem.is_whole for problem in journal.problems),
    )


def extent_of(store: ResultStore, sweep_id: str) -> Extent:
    """Reads only names and sizes of files."""
    files = [file for path in store.files_of(sweep_id) for file in _files(path)]
    entries = read_exclusions(store.root).entries
    return Extent(
        n_bytes=sum(file.stat().st_size for file in files),
        n_raw_logs=sum(store.raw_folder(sweep_id) in file.parents for file in files),
        exclusions=tuple(one.number for one in entries if one.sweep_id == sweep_id),
    )


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (file for file in path.rglob("*") if file.is_file())
    else:
        yield path

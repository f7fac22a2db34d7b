"""Deletes sweeps: their files, and the exclusions that refer to them."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetrank.orchestrator.durable import store_error, sync_folder
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.housekeeping.stored_sweep import (
    Operation,
    content_of,
    extent_of,
    left_over,
    mark,
    operation_of,
    unmark,
)
from fleetrank.orchestrator.store.exclusions import forget_sweep
from fleetrank.orchestrator.store.results import ResultStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """What will be deleted with one sweep.

    Attributes:
        n_rows: number of rows; `None` if they cannot be read.
        exclusions: numbers of the exclusions that refer to it.
        is_left_over: an earlier run was interrupted; readers do not see the sweep any more.
    """

    sweep_id: str
    n_rows: int | None
    n_bytes: int
    n_raw_logs: int
    exclusions: tuple[int, ...]
    is_left_over: bool


def plan_deletion(store: ResultStore, sweep_ids: Sequence[str]) -> list[Deletion]:
    """Returns what would be deleted: the named sweeps, and those of an interrupted earlier run.

    Raises:
        UsageError: a sweep does not exist or is running.
    """
    unfinished = list(left_over(store, Operation.DELETE))
    named = [sweep_id for sweep_id in dict.fromkeys(sweep_ids) if sweep_id not in unfinished]
    for sweep_id in named:
        store.check_sweep(sweep_id)
        with store.lease(sweep_id):
            pass
    return [_deletion(store, sweep_id) for sweep_id in (*unfinished, *named)]


def delete_sweep(store: ResultStore, sweep_id: str) -> None:
    """Deletes one sweep; a second run continues an interrupted one.

    Raises:
        UsageError: the sweep is running.
        StoreError: a file cannot be removed. Readers do not see the sweep any more; the next run
            removes the rest.
    """
    with store.lease(sweep_id):
        mark(store, sweep_id, Operation.DELETE)
        forget_sweep(store.root, sweep_id)
        for path in store.files_of(sweep_id):
            remove(path)
        # The lock is on the file, not on its name, so a waiting process notices the deletion.
        remove(store.lease_path(sweep_id))
        unmark(store, sweep_id)


def remove(path: Path) -> None:
    """Removes a file or a folder permanently.

    Raises:
        StoreError: it cannot be removed.
    """
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        raise store_error(path, error) from error


def _deletion(store: ResultStore, sweep_id: str) -> Deletion:
    extent = extent_of(store, sweep_id)
    is_left_over = operation_of(store, sweep_id) is Operation.DELETE
    return Deletion(
        sweep_id=sweep_id,
        n_rows=None if is_left_over else _n_rows(store, sweep_id),
        n_bytes=extent.n_bytes,
        n_raw_logs=extent.n_raw_logs,
        exclusions=extent.exclusions,
        is_left_over=is_left_over,
    )


def _n_rows(store: ResultStore, sweep_id: str) -> int | None:
    try:
        return content_of(store, sweep_id).n_rows
    except StoreError:
        return None

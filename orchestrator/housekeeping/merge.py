"""Copies the sweeps of another workspace into this one; devices, cards and files stay there."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fleetrank.analysis.stored.exclusions import read_exclusions
from fleetrank.foundation.lease import is_locked
from fleetrank.orchestrator.durable import store_error, sync_file, sync_folder
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.housekeeping.delete import remove
from fleetrank.orchestrator.housekeeping.stored_sweep import (
    Operation,
    content_of,
    extent_of,
    mark,
    operation_of,
    unmark,
)
from fleetrank.orchestrator.store.exclusions import adopt
from fleetrank.orchestrator.store.results import ResultStore


class Step(StrEnum):
    """The action for one sweep of the other workspace."""

    COPY = "copy"
    SKIP = "skip"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """One sweep of the other workspace.

    Attributes:
        exclusions: numbers, in the other workspace, of the exclusions that refer to it.
        reason: why it is not copied; `None` if it is copied.
    """

    sweep_id: str
    step: Step
    n_rows: int
    n_bytes: int
    n_raw_logs: int
    exclusions: tuple[int, ...]
    reason: str | None


def plan_merge(store: ResultStore, other: ResultStore) -> list[Merging]:
    """Returns what would be copied, skipped and rejected; changes nothing.

    Raises:
        UsageError: both are the same folder.
        StoreError: rows on either side cannot be read.
    """
    if store.root.resolve() == other.root.resolve():
        raise UsageError(f"{other.root} is this workspace", "name another workspace")
    return [_merging(store, other, sweep_id) for sweep_id in other.sweep_ids()]


def copy_sweep(store: ResultStore, other: ResultStore, sweep_id: str) -> None:
    """Copies one sweep that is not here; a second run repeats an interrupted one.

    Raises:
        UsageError: the sweep is running on one side.
        StoreError: a file cannot be read or written; readers do not see the sweep.
    """
    with _still(other, sweep_id), store.lease(sweep_id):
        store.write_schema()
        mark(store, sweep_id, Operation.MERGE)
        for path in store.files_of(sweep_id):
            remove(path)  # files of an interrupted earlier run may be incomplete
        for path in other.files_of(sweep_id):
            _copy(path, store.root / path.relative_to(other.root))
        entries = read_exclusions(other.root).entries
        adopt(store.root, [one for one in entries if one.sweep_id == sweep_id])
        unmark(store, sweep_id)


def _merging(store: ResultStore, other: ResultStore, sweep_id: str) -> Merging:
    found = content_of(other, sweep_id)
    extent = extent_of(other, sweep_id)
    step, reason = Step.COPY, None
    if is_locked(other.lease_path(sweep_id)):
        step, reason = Step.REFUSE, f"it runs in {other.root}"
    elif operation_of(store, sweep_id) is Operation.DELETE:
        step, reason = Step.REFUSE, f"it is being deleted in {store.root}"
    elif sweep_id in store.sweep_ids():
        is_equal = content_of(store, sweep_id) == found and store.sweep_record(
            sweep_id
        ) == other.sweep_record(sweep_id)
        step = Step.SKIP if is_equal else Step.REFUSE
        there, here = other.record_path(sweep_id), store.record_path(sweep_id)
        reason = "it is here already" if is_equal else f"{there} and {here} are different sweeps"
    return Merging(
        sweep_id=sweep_id,
        step=step,
        n_rows=found.n_rows,
        n_bytes=extent.n_bytes,
        n_raw_logs=extent.n_raw_logs,
        exclusions=extent.exclusions,
        reason=reason,
    )


@contextmanager
def _still(other: ResultStore, sweep_id: str) -> Iterator[None]:
    """Holds the other side's lease; not needed if its folder cannot be written."""
    if not os.access(other.lease_path(sweep_id).parent, os.W_OK):
        yield
        return
    with other.lease(sweep_id):
        yield


def _copy(source: Path, target: Path) -> None:
    """Copies a file or a folder, synced; links are not followed, as they may lead anywhere."""
    if source.name.startswith("."):
        return  # an incomplete file of a writer that was killed
    try:
        if source.is_symlink():
            raise UsageError(f"{source} is a link", "put the file itself in its place")
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            for inner in sorted(source.iterdir()):
                _copy(inner, target / inner.name)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            sync_file(target)
        sync_folder(target.parent)
    except OSError as error:
        raise store_error(target, error) from error

"""Deletes sweeps with the exclusions that refer to them; copies sweeps of another workspace.

Devices, cards and files stay in the other workspace. A marker hides a sweep that is being removed
or copied from readers. When this one file is made or removed, the sweep disappears or appears for
all readers at once. A process that is killed leaves the marker, and the next run continues.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from fleetrank.analysis.stored.exclusions import read_exclusions
from fleetrank.analysis.stored.part_list import REPAIR, pending_path
from fleetrank.foundation.errors import BadFileError, MissingFileError
from fleetrank.foundation.lease import is_locked
from fleetrank.foundation.plain_data import read_json_object
from fleetrank.foundation.reading_beside import pause_between_steps
from fleetrank.foundation.small_file import check_regular
from fleetrank.orchestrator.durable import replace_file, storing, sync_file, sync_folder
from fleetrank.orchestrator.errors import NewerSchemaError, StoreError, UsageError
from fleetrank.orchestrator.store.health import Content, content_of
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.small_files import adopt, forget_sweep


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
    with storing(path):
        path.unlink(missing_ok=True)
        sync_folder(path.parent)


def operation_of(store: ResultStore, sweep_id: str) -> Operation | None:
    """Returns what is being done to a sweep or was interrupted; `None` for most sweeps.

    Raises:
        StoreError: the marker is damaged.
    """
    path = pending_path(store.root, sweep_id)
    try:
        return Operation(str(read_json_object(path)["operation"]))
    except MissingFileError:
        return None
    except (BadFileError, ValueError, KeyError) as error:
        raise StoreError(
            f"{path} is damaged: {error}", f"delete it; then sweep {sweep_id} is visible again"
        ) from error


def left_over(store: ResultStore, operation: Operation) -> Iterator[str]:
    """Returns the sweeps with this marker."""
    for path in sorted((store.root / "sweeps").glob("*.pending")):
        if operation_of(store, path.stem) is operation:
            yield path.stem


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What a sweep consists of.

    Attributes:
        n_rows: number of rows; `None` if they cannot be read.
        exclusions: numbers of the exclusions that refer to it.
    """

    sweep_id: str
    n_rows: int | None
    n_bytes: int
    n_raw_logs: int
    exclusions: tuple[int, ...]


def _extent(store: ResultStore, sweep_id: str, n_rows: int | None) -> dict[str, Any]:
    """The fields of an `Extent`; reads only names and sizes of files."""
    files = [file for path in store.files_of(sweep_id) for file in _files(path)]
    entries = read_exclusions(store.root).entries
    return {
        "sweep_id": sweep_id,
        "n_rows": n_rows,
        "n_bytes": sum(file.stat().st_size for file in files),
        "n_raw_logs": sum(store.raw_folder(sweep_id) in file.parents for file in files),
        "exclusions": tuple(one.number for one in entries if one.sweep_id == sweep_id),
    }


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (file for file in path.rglob("*") if file.is_file())
    else:
        yield path


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion(Extent):
    """What will be deleted with one sweep.

    Attributes:
        is_left_over: an earlier run was interrupted; readers do not see the sweep any more.
    """

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
    with storing(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        sync_folder(path.parent)


def _deletion(store: ResultStore, sweep_id: str) -> Deletion:
    is_left_over = operation_of(store, sweep_id) is Operation.DELETE
    n_rows = None if is_left_over else _n_rows(store, sweep_id)
    return Deletion(**_extent(store, sweep_id, n_rows), is_left_over=is_left_over)


def _n_rows(store: ResultStore, sweep_id: str) -> int | None:
    try:
        return content_of(store, sweep_id).n_rows
    except StoreError:
        return None


class Step(StrEnum):
    """The action for one sweep of the other workspace."""

    COPY = "copy"
    SKIP = "skip"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging(Extent):
    """One sweep of the other workspace; numbers of exclusions are those there.

    Attributes:
        reason: why it is not copied; `None` if it is copied.
    """

    step: Step
    reason: str | None


def plan_merge(store: ResultStore, other: ResultStore) -> list[Merging]:
    """Returns what would be copied, skipped and rejected; changes nothing.

    Raises:
        UsageError: both are the same folder.
        StoreError: rows or a record on either side cannot be read.
    """
    if store.root.resolve() == other.root.resolve():
        raise UsageError(f"{other.root} is this workspace", "name another workspace")
    found = []
    for sweep_id in other.sweep_ids():
        pause_between_steps(f"compares {sweep_id}")
        found.append(_merging(store, other, sweep_id))
    return found


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
        store.publish(sweep_id)


def _merging(store: ResultStore, other: ResultStore, sweep_id: str) -> Merging:
    theirs = other.sweep_record(sweep_id)
    found, lost = Content(n_rows=0, digest=0), None
    try:
        found = content_of(other, sweep_id)
    except NewerSchemaError:
        raise
    except StoreError as error:
        lost = f"{error.message}; {REPAIR} there restores what has an undamaged copy"
    step, reason = Step.REFUSE, lost
    if is_locked(other.lease_path(sweep_id)):
        reason = f"it runs in {other.root}"
    elif operation_of(store, sweep_id) is Operation.DELETE:
        reason = f"it is being deleted in {store.root}"
    elif lost is None and sweep_id in store.sweep_ids():
        is_equal = content_of(store, sweep_id) == found and store.sweep_record(sweep_id) == theirs
        step = Step.SKIP if is_equal else Step.REFUSE
        there, here = other.record_path(sweep_id), store.record_path(sweep_id)
        reason = "it is here already" if is_equal else f"{there} and {here} are different sweeps"
    elif lost is None:
        step = Step.COPY
    return Merging(**_extent(other, sweep_id, found.n_rows), step=step, reason=reason)


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
    with storing(target):
        if source.is_symlink():
            raise UsageError(f"{source} is a link", "put the file itself in its place")
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            for inner in sorted(source.iterdir()):
                _copy(inner, target / inner.name)
        else:
            check_regular(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            sync_file(target)
        sync_folder(target.parent)

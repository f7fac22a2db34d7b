"""The marker of a sweep that is being removed or copied: it hides the sweep from readers.

When this one file is made or removed, the sweep disappears or appears for all readers at once. A
process that is killed leaves the marker, and the next run continues.
"""

import json
from collections.abc import Iterator
from enum import StrEnum

from fleetrank.analysis.stored.part_files import pending_path
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

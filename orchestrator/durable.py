"""Writing files of the results folder; what cannot be written is a `StoreError`."""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from fleetrank.foundation import files
from fleetrank.foundation.files import (
    NoRoomError,
    StorageError,
    storage_error,
    sync_file,
    sync_folder,
)
from fleetrank.orchestrator.errors import FullDiskError, StoreError

__all__ = ["replace_file", "replace_file_with", "store_error", "sync_file", "sync_folder"]


def store_error(path: Path, error: OSError) -> StoreError:
    """Says what could not be written and what to do about it."""
    return _of_store(storage_error(path, error))


def replace_file(path: Path, content: bytes, *, is_synced: bool = True) -> None:
    """Writes a file aside, syncs it and renames it into place; the old one stays until then.

    Args:
        path: the file; its folder is made where it is missing.
        content: all of it.
        is_synced: false leaves syncing file and folder to the caller, for a quieter moment.

    Raises:
        StoreError: the disk is full or the folder cannot be written; nothing changed.
    """
    replace_file_with(path, lambda file: file.write(content), is_synced=is_synced)


def replace_file_with(
    path: Path, write: Callable[[BinaryIO], object], *, is_synced: bool = True
) -> None:
    """As `replace_file`, for content that is not in memory as a whole.

    Args:
        path: the file; its folder is made where it is missing.
        write: writes all of it into an open file, which it may read and seek.
        is_synced: see `replace_file`.

    Raises:
        StoreError: as `replace_file`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace_file_with(path, write, is_synced=is_synced)
    except StorageError as error:
        raise _of_store(error) from error
    except OSError as error:
        raise store_error(path, error) from error


def _of_store(error: StorageError) -> StoreError:
    kind = FullDiskError if isinstance(error, NoRoomError) else StoreError
    return kind(error.message, error.remedy)

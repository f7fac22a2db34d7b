"""Writes files of the results folder; a file that cannot be written raises `StoreError`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fleetrank.foundation import files
from fleetrank.foundation.errors import reworded
from fleetrank.foundation.files import (
    NoRoomError,
    StorageError,
    storage_error,
    sync_file,
    sync_folder,
)
from fleetrank.orchestrator.errors import FullDiskError, StoreError

__all__ = ["replace_file", "replace_file_with", "storing", "sync_file", "sync_folder"]


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Raises the system's refusals in the block as `StoreError`; `path` is what it writes."""
    with reworded(StoreError, StorageError), reworded(FullDiskError, NoRoomError):
        try:
            yield
        except OSError as error:
            raise storage_error(path, error) from error


def replace_file(path: Path, content: bytes, *, is_synced: bool = True) -> None:
    """Writes a temporary file, syncs it and renames it over the old one.

    Args:
        path: the file; its folder is made if it is missing.
        content: the complete content.
        is_synced: if false, the caller syncs file and folder later.

    Raises:
        StoreError: the disk is full or the folder cannot be written; nothing changed.
    """
    replace_file_with(path, lambda file: file.write(content), is_synced=is_synced)


def replace_file_with(
    path: Path, write: Callable[[BinaryIO], object], *, is_synced: bool = True
) -> None:
    """The same as `replace_file`, for content that is not completely in memory.

    Args:
        path: the file; its folder is made if it is missing.
        write: writes the complete content into an open file; it may read and seek.
        is_synced: if false, the caller syncs file and folder later.

    Raises:
        StoreError: the same errors as `replace_file`.
    """
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace_file_with(path, write, is_synced=is_synced)

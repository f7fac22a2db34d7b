"""Writing files so that a reader, a crash or a full disk never leaves half of one."""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import FullDiskError, StoreError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}
FREE_SPACE = "free some space (`fleetrank models prune --max-size 2GB` bounds the artifact cache)"


def store_error(path: Path, error: OSError) -> StoreError:
    """Says what could not be written and what to do about it."""
    if error.errno in _FULL:
        return FullDiskError(
            f"{path} cannot be written: the disk is full",
            f"{FREE_SPACE}, then run the command again: what was stored is kept",
        )
    remedy = "check that its folder is there and may be written to"
    if error.errno in _FORBIDDEN:
        remedy = "get the right to it (owner, mode, read-only mount), or work in another workspace"
    return StoreError(f"{path} cannot be written: {error.strerror or error}", remedy)


def is_about_storage(error: OSError) -> bool:
    """Whether the disk or its rights are the reason, which a person can do something about."""
    return error.errno in _FULL | _FORBIDDEN


def replace_file(path: Path, content: bytes, *, is_synced: bool = True) -> None:
    """Writes a file aside, syncs it and renames it into place; the old one stays until then.

    Args:
        path: the file.
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
        path: the file.
        write: writes all of it into an open file, which it may read and seek.
        is_synced: see `replace_file`.

    Raises:
        StoreError: as `replace_file`.
    """
    # The leading dot hides it from every glob a reader uses.
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("w+b") as file:
            write(file)
        if is_synced:
            sync_file(aside)
        aside.replace(path)
        if is_synced:
            sync_folder(path.parent)
    except OSError as error:
        raise store_error(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def sync_file(path: Path) -> None:
    """Makes a file's content survive a power cut."""
    _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """Makes renames and new names in a folder survive a power cut."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

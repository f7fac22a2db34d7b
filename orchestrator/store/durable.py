"""Writing files so that a reader, a crash or a full disk never leaves half of one."""

import contextlib
import errno
import os
from pathlib import Path

from orchestrator.errors import StoreError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def store_error(path: Path, error: OSError) -> StoreError:
    """Says what could not be written and what to do about it."""
    if error.errno in _FULL:
        return StoreError(
            f"{path} cannot be written: the disk is full",
            "free some space (`fleetrank models prune --max-size 2GB` bounds the artifact cache), "
            "then `fleetrank sweep resume`: what was measured is kept",
        )
    return StoreError(
        f"{path} cannot be written: {error.strerror or error}",
        "check that the results folder is there and may be written to",
    )


def replace_file(path: Path, content: bytes, *, is_synced: bool = True) -> None:
    """Writes a file aside, syncs it and renames it into place; the old one stays until then.

    Args:
        path: the file.
        content: all of it.
        is_synced: false leaves syncing file and folder to the caller, for a quieter moment.

    Raises:
        StoreError: the disk is full or the folder cannot be written; nothing changed.
    """
    # The leading dot hides it from every glob a reader uses.
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(content)
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

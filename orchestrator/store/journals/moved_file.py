"""Finds open files whose folder was moved: the open file moves with it, its path does not.

A driver that wrote to the old path would make that folder again and split its results.
"""

import os
from pathlib import Path

from fleetrank.orchestrator.errors import MovedFolderError

_DESCRIPTORS = Path("/proc/self/fd")


def place_of(path: Path, descriptor: int) -> Path | None:
    """Returns where an open file is now; `None` if it was removed.

    Args:
        path: the path by which it was opened.
        descriptor: of the open file.
    """
    if _is_at(path, descriptor):
        return path
    now = (_DESCRIPTORS / str(descriptor)).readlink()
    return now if _is_at(now, descriptor) else None


def check_place(path: Path, descriptor: int) -> None:
    """Checks that an open file is still at its path.

    Raises:
        MovedFolderError: it was moved or removed.
    """
    place = place_of(path, descriptor)
    if place is None:
        raise MovedFolderError(f"{path} was removed while it was in use", "restore it")
    if place != path:
        raise MovedFolderError(
            f"{path} was moved while it was in use, to {place}",
            "change to the new folder",
        )


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False

"""An open file follows when its folder is moved; the path it was opened by does not.

A driver that wrote to the old path would make that folder again, and divide its results in two.
"""

import os
from pathlib import Path

from fleetrank.orchestrator.errors import MovedFolderError

_DESCRIPTORS = Path("/proc/self/fd")


def place_of(path: Path, descriptor: int) -> Path | None:
    """Where an open file is now; `None` when it has been removed.

    Args:
        path: by which it was opened.
        descriptor: of the open file.
    """
    if _is_at(path, descriptor):
        return path
    now = (_DESCRIPTORS / str(descriptor)).readlink()
    return now if _is_at(now, descriptor) else None


def check_place(path: Path, descriptor: int) -> None:
    """Returns while an open file is where it was.

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

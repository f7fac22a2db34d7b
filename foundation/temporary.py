"""Folders for temporary files; one that a killed process left is removed by the next process.

Each folder is locked as long as its process lives, so an abandoned one has no lock.
"""

import contextlib
import fcntl
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

_log = logging.getLogger(__name__)
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class LockedFolder:
    """A folder of this process.

    Attributes:
        path: its mode is 0700.
        lock: descriptor that keeps it locked; after closing, another process may remove the folder.
    """

    path: Path
    lock: int


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """Makes a folder of `make_folder` for the block, and removes it afterwards.

    Raises:
        OSError: the folder cannot be made.
    """
    made = make_temporary_folder(purpose, Path(tempfile.gettempdir()))
    try:
        yield made.path
    finally:
        try:
            remove_tree(made.path)
        except OSError as error:
            _log.warning("cannot remove %s: %s", made.path, error.strerror)
        os.close(made.lock)


def make_temporary_folder(purpose: str, place: Path) -> LockedFolder:
    """Removes abandoned folders `fleetrank-PURPOSE-XXXXXXXX` of this user and makes a new one.

    Raises:
        OSError: the folder cannot be made.
    """
    prefix = f"fleetrank-{purpose}-"
    for found in place.glob(f"{prefix}*"):
        # It belongs to another user, or another process removes it now.
        with contextlib.suppress(OSError):
            _remove_abandoned(found)
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))  # mode 0700
        # Another process may remove a new folder as abandoned before it is locked.
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(path, _OPEN)
            # Without locks, as for folders on NFS, no process removes it.
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return LockedFolder(path=path, lock=lock)
            os.close(lock)


def _remove_abandoned(folder: Path) -> None:
    lock = os.open(folder, _OPEN)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_uid == os.getuid():
            remove_tree(folder)
    finally:
        os.close(lock)


def remove_tree(folder: Path) -> None:
    """Removes a folder whatever it contains: unlimited depth, modes of 000, links.

    Inner folders are moved up to the first level before they are emptied, so no path becomes long
    and the function does not recurse as `shutil.rmtree` does.

    Raises:
        OSError: something in it belongs to another user.
    """
    folder.chmod(0o700)
    names = (folder / f".{number}" for number in count())
    waiting = _emptied(folder)
    while waiting:
        found = waiting.pop()
        for inner in _emptied(found):
            waiting.append(inner.rename(next(name for name in names if not name.exists())))
        found.rmdir()
    folder.rmdir()


def _emptied(folder: Path) -> list[Path]:
    """Removes everything except folders, and returns the folders in it, opened for their owner."""
    folders = []
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            Path(entry.path).chmod(0o700)  # also needed to move it: its `..` changes
            folders.append(Path(entry.path))
        else:
            Path(entry.path).unlink()
    return folders

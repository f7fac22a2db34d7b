"""File locks that the system releases if their holder dies for any reason."""

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import IO

_PAUSE_S = 0.1
"""Poll interval of a waiting process: long enough not to disturb a measurement on this host."""


@contextmanager
def open_lease(path: Path) -> Iterator[IO[str]]:
    """Opens the file to lock; its locks are released at the end of the block."""
    # Children may outlive us, so they do not inherit it. Links of other users are not followed.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "r+", encoding="utf-8") as file:
        yield file


def wait_for_lock(file: IO[str], give_up: Callable[[], bool], *, is_shared: bool = False) -> bool:
    """Takes the lock; returns false if another process has it and `give_up`, polled, says to stop.

    Any number of processes can hold a shared lock together, but not beside an exclusive lock.
    """
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if give_up():
                return False
            sleep(_PAUSE_S)
        else:
            return True


def is_locked(path: Path) -> bool:
    """Whether a live process has the lock; does not take it."""
    try:
        with path.open("rb") as file:
            # Shared, and released at once: two checks do not see each other as holder.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def sign(file: IO[str], purpose: str) -> None:
    """Writes the holder, the time and the purpose into the locked file, for display."""
    started_utc = datetime.now(UTC).isoformat(timespec="seconds")
    text = json.dumps({"pid": os.getpid(), "started_utc": started_utc, "purpose": purpose})
    # If the disk is full, the lock still works without this text.
    with contextlib.suppress(OSError):
        os.ftruncate(file.fileno(), 0)
        os.pwrite(file.fileno(), text.encode(), 0)


def holder(file: IO[str]) -> str:
    """Describes the holder that signed the file, as a phrase."""
    file.seek(0)
    try:
        signature = json.loads(file.read())
        pid, since = int(signature["pid"]), str(signature["started_utc"])
        return f"{signature['purpose']} (process {pid}, since {since})"
    except (ValueError, KeyError, TypeError):
        return "another process"  # it has the lock and has not signed yet

"""Locks on files that the system lets go of when their holder dies, however it ends."""

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
"""How often a waiting process wakes: rare enough not to disturb a measurement beside it."""


@contextmanager
def open_lease(path: Path) -> Iterator[IO[str]]:
    """The file to lock; what was locked is free again at the end of the block."""
    # Not inherited by children, which may outlive us; no link that somebody else has laid.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "r+", encoding="utf-8") as file:
        yield file


def wait_for_lock(file: IO[str], give_up: Callable[[], bool], *, is_shared: bool = False) -> bool:
    """Takes the lock; false when another has it and `give_up`, asked again and again, says so.

    A shared lock is held by any number at once, and by nobody beside one that is not shared.
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
    """Whether a live process has the lock; takes nothing itself."""
    try:
        with path.open("rb") as file:
            # Shared, and let go at once: two that look do not see each other as a holder.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def sign(file: IO[str], purpose: str) -> None:
    """Writes into the locked file who has it, since when and what for; for people."""
    started_utc = datetime.now(UTC).isoformat(timespec="seconds")
    text = json.dumps({"pid": os.getpid(), "started_utc": started_utc, "purpose": purpose})
    # The lock holds without it, on a full disk too.
    with contextlib.suppress(OSError):
        os.ftruncate(file.fileno(), 0)
        os.pwrite(file.fileno(), text.encode(), 0)


def holder(file: IO[str]) -> str:
    """Who signed the file, as a phrase."""
    file.seek(0)
    try:
        signature = json.loads(file.read())
        pid, since = int(signature["pid"]), str(signature["started_utc"])
        return f"{signature['purpose']} (process {pid}, since {since})"
    except (ValueError, KeyError, TypeError):
        return "another process"  # it has the lock and has not signed yet

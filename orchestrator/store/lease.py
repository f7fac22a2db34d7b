"""One driver per sweep: a lock that the system lets go of when its holder dies."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from orchestrator.errors import UsageError

_PATIENCE_S = 1.0
"""`sweep status` holds the lock for an instant; a driver holds it for the whole sweep."""
_PAUSE_S = 0.02


@contextmanager
def sweep_lease(path: Path) -> Iterator[None]:
    """Holds the lease while the block runs; one left by a dead driver is taken over.

    A lock and not a file that merely exists: the system frees it however its holder ends, so that
    no stale one has to be told from a live one.

    Raises:
        UsageError: another live process holds it; names that process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not inherited by children (Python opens with O_CLOEXEC), which may outlive the driver.
    with path.open("a+", encoding="utf-8") as file:
        if not _is_locked(file):
            file.seek(0)
            raise UsageError(
                f"{path.stem} is being run by another process: {file.read().strip()}",
                "wait for it, or end that process and run `fleetrank sweep resume`",
            )
        file.truncate(0)
        started_utc = datetime.now(UTC).isoformat(timespec="seconds")
        file.write(json.dumps({"pid": os.getpid(), "started_utc": started_utc}))
        file.flush()
        yield


def _is_locked(file: IO[str]) -> bool:
    """Takes the lock, waiting out whoever only looks; false when another driver keeps it."""
    deadline_s = monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() >= deadline_s:
                return False
            sleep(_PAUSE_S)
        else:
            return True

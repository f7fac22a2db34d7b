"""File locks that the system releases if their holder dies, and the lock for this host.

Only one measurement, export or other heavy work runs at a time on a host: a measurement on a
host's processor disturbs other computations on it, and they disturb it. Every fleetrank process of
a user on a host takes `host_lease` around such work.

`foundation.lease` has the work that does not take it, so that no measurement waits for it.
"""

import contextlib
import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from fleetrank.foundation.errors import FleetError, warn_once
from fleetrank.foundation.small_file import IrregularFileError, open_checked, open_regular
from fleetrank.foundation.vocabulary import Words
from fleetrank.foundation.wording import duration

PAUSE_S = 0.1
"""Poll interval of a waiting process: long enough not to disturb a measurement on this host."""


@contextmanager
def open_lease(path: Path) -> Iterator[IO[str]]:
    """Opens the file to lock; its locks are released at the end of the block."""
    # Links of other users are not followed.
    descriptor = open_checked(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "r+", encoding="utf-8") as file:
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
            sleep(PAUSE_S)
        else:
            return True


def is_locked(path: Path) -> bool:
    """Whether a live process has the lock; does not take it."""
    try:
        with open_regular(path) as file:
            # Shared, and released at once: two checks do not see each other as holder.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


_WITHOUT_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})


def seems_locked(path: Path) -> bool:
    """As `is_locked`, for readers: false where it cannot be known, which is said once.

    So it is on a file system without locks, and if a folder or a pipe has the name of the file.
    """
    try:
        return is_locked(path)
    except IrregularFileError as error:
        warn_once(f"{error}: whether its sweep runs is not known")
        return False
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        warn_once(
            f"{path.parent} has no file locks: what runs is not known, and nothing can be run"
        )
        return False


class Use(Words):
    """What a holder of the host's lease does with the host."""

    TIMES = "times"
    """It takes times, alone; reading waits for its end."""
    WORK = "work"
    """It works alone, such as an export; reading goes on beside it."""
    BESIDE = "beside"
    """Several may, such as phones on one host; who is alone must wait."""


def sign(file: IO[str], purpose: str, use: Use = Use.TIMES) -> None:
    """Writes the holder, the time, the purpose and the use into the locked file."""
    started_utc = datetime.now(timezone.utc).isoformat(timespec="seconds")
    text = json.dumps(
        {
            "pid": os.getpid(), "started_utc": started_utc, "purpose": purpose,
            "use": use.value,
        }
    )  # fmt: skip
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


_NOTICE_S = 1.0
"""A longer wait without output looks like a hang; most waits are shorter."""
LONGEST_WAIT_S = 4 * 3600.0
"""Of one wait for the host: several turns, each with its own limit, of an hour at most (a part
of an evaluation). It ends a wait for a process that was stopped."""


class LeaseError(FleetError):
    """No folder on this host can safely hold the lease."""


class HostBusyError(FleetError):
    """The host was not free within the limit."""


def say_nothing(_message: str) -> None:
    """Ignores the notice of a wait."""


def never_give_up() -> bool:
    """Waits without limit."""
    return False


def give_up_at_once() -> bool:
    """Takes the lease only if it is free."""
    return True


@contextmanager
def host_lease(
    purpose: str,
    *,
    use: Use = Use.TIMES,
    on_wait: Callable[[str], None] = say_nothing,
    give_up: Callable[[], bool] = never_give_up,
    limit_s: float = LONGEST_WAIT_S,
    busy: Callable[[str], FleetError] | None = None,
) -> Iterator[bool]:
    """Holds this host's lease for the block; yields whether it is held (false after giving up).

    Do not nest it: a holder that takes it again waits until the limit. Waiting processes are served
    before a process that releases it and takes it again at once, so two sweeps take turns.

    Args:
        purpose: who holds it and why, shown to waiting processes: 'sweep s-1, which measures here'.
        use: of the host.
        on_wait: called once with what the wait is for, if the wait becomes long.
        give_up: called about ten times a second while waiting.
        limit_s: the longest wait.
        busy: makes the error of the limit from who holds the lease; `None` for `HostBusyError`.

    Raises:
        LeaseError: no safe folder for the lease exists.
        HostBusyError: it was not free within `limit_s`.
    """
    folder = runtime_folder()
    with open_lease(folder / HOST_LEASE) as lease:
        is_over = patience(lease, limit_s, on_wait, give_up, busy)
        # Only one process waits for the lease itself. A process that releases it queues behind.
        with open_lease(folder / _QUEUE) as turn:
            is_held = wait_for_lock(turn, is_over) and wait_for_lock(
                lease, is_over, is_shared=use is Use.BESIDE
            )
        if is_held:
            sign(lease, purpose, use)
        yield is_held


HOST_LEASE, _QUEUE = "host.lease", "host.next"


def patience(
    lease: IO[str],
    limit_s: float,
    on_wait: Callable[[str], None],
    give_up: Callable[[], bool],
    busy: Callable[[str], FleetError] | None = None,
) -> Callable[[], bool]:
    """Whether to give up, asked while waiting; announces a long wait, raises at its limit."""
    since_s = monotonic()
    is_announced = False

    def is_over() -> bool:
        nonlocal is_announced
        waited_s = monotonic() - since_s
        if not is_announced and waited_s >= _NOTICE_S:
            is_announced = True
            on_wait(f"waiting for {holder(lease)}, at most {duration(limit_s)}")
        if give_up():
            return True
        if waited_s >= limit_s and busy is not None:
            raise busy(holder(lease))
        if waited_s >= limit_s:
            raise HostBusyError(
                f"this host was not free for {duration(limit_s)}; it is used by {holder(lease)}",
                "wait until it has ended, or end that process; then run the command again",
            )
        return False

    return is_over


def is_host_wanted() -> bool:
    """Whether a process waits for the host's lease; the holder asks between two steps."""
    return is_locked(runtime_folder() / _QUEUE)


def is_host_measured() -> bool:
    """Whether a process holds the host's lease alone, and takes times."""
    try:
        path = runtime_folder() / HOST_LEASE
    except LeaseError:
        return False  # no process can take it
    if not is_locked(path):
        return False
    with open_regular(path) as file:
        try:
            return bool(json.loads(file.read()).get("use") != Use.WORK.value)
        except (ValueError, AttributeError):
            return True  # it has the lock and has not signed yet


def runtime_folder() -> Path:
    """A folder that every process of this user on this host finds, and only this user may write.

    Raises:
        LeaseError: another user has created a folder of this name.
    """
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and Path(given).is_absolute() and os.access(given, os.W_OK | os.X_OK):
        folder = Path(given) / "fleetrank"
    else:
        # Not `tempfile.gettempdir()`: TMPDIR differs between processes of one user.
        folder = Path(f"/tmp/fleetrank-{os.getuid()}")  # noqa: S108 - checked below
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise _unsafe(folder, str(error)) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise _unsafe(folder, "it is a link, not a folder, or belongs to another user")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise _unsafe(folder, "other users may open it")
    return folder


def _unsafe(folder: Path, why: str) -> LeaseError:
    return LeaseError(
        f"the lease of this host cannot be kept in {folder}: {why}",
        "remove it, or set XDG_RUNTIME_DIR to a folder that belongs to you",
    )

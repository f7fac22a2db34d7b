"""Lock for this host: only one measurement, export or other heavy work runs at a time.

A measurement on a host's processor disturbs other computations on it, and they disturb it.
Every fleetrank process of a user on a host takes this lease around such work.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.host.file_lease import holder, open_lease, sign, wait_for_lock

_NOTICE_S = 1.5
"""A longer wait without output looks like a hang; most waits are shorter."""


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
    is_shared: bool = False,
    on_wait: Callable[[str], None] = say_nothing,
    give_up: Callable[[], bool] = never_give_up,
) -> Iterator[bool]:
    """Holds this host's lease for the block; yields whether it is held (false after giving up).

    Do not nest it: a holder that takes it again waits forever. Waiting processes are served
    before a process that releases it and takes it again at once, so two sweeps take turns.

    Args:
        purpose: who holds it and why, shown to waiting processes: 'sweep s-1, which measures here'.
        is_shared: several holders may share it, such as phones on one host; an exclusive holder
            must wait.
        on_wait: called once with what the wait is for, if the wait becomes long.
        give_up: called about ten times a second while waiting.

    Raises:
        PermanentError: no safe folder for the lease exists.
    """
    folder = runtime_folder()
    deadline_s = monotonic() + _NOTICE_S
    is_told = False
    with open_lease(folder / "host.lease") as lease:

        def is_over() -> bool:
            nonlocal is_told
            if not is_told and monotonic() >= deadline_s:
                is_told = True
                on_wait(f"waiting for {holder(lease)}")
            return give_up()

        # Only one process waits for the lease itself. A process that releases it queues behind.
        with open_lease(folder / "host.next") as turn:
            is_held = wait_for_lock(turn, is_over) and wait_for_lock(
                lease, is_over, is_shared=is_shared
            )
        if is_held:
            sign(lease, purpose)
        yield is_held


def runtime_folder() -> Path:
    """A folder that every process of this user on this host finds, and only this user may write.

    Raises:
        PermanentError: another user has created a folder of this name.
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


def _unsafe(folder: Path, why: str) -> PermanentError:
    return PermanentError(
        f"the lease of this host cannot be kept in {folder}: {why}",
        "remove it, or set XDG_RUNTIME_DIR to a folder that belongs to you",
    )

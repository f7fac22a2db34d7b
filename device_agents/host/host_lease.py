"""The quiet of this host: one measurement, export or other heavy work at a time.

Whatever measures on a host's processor disturbs, and is disturbed by, all that computes beside it.
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
"""A wait that a person begins to wonder about; most are over by then."""


def say_nothing(_message: str) -> None:
    """Takes the notice of a wait that nobody watches."""


def never_give_up() -> bool:
    """Waits as long as it takes."""
    return False


def give_up_at_once() -> bool:
    """Takes the lease only when it is free."""
    return True


@contextmanager
def host_lease(
    purpose: str,
    *,
    is_shared: bool = False,
    on_wait: Callable[[str], None] = say_nothing,
    give_up: Callable[[], bool] = never_give_up,
) -> Iterator[bool]:
    """Holds this host's lease while the block runs; gives whether it does, false after giving up.

    Not to be nested: whoever holds it and asks again waits for itself. Those who wait are served
    before one who lets go and asks again at once, so that two sweeps take turns.

    Args:
        purpose: who holds it what for, for those who wait: 'sweep s-1, which measures here'.
        is_shared: beside others that share it, such as phones on one host, and beside nothing
            else.
        on_wait: is told once, when the wait grows long, what is waited for.
        give_up: asked about ten times a second while waiting.

    Raises:
        PermanentError: there is no safe place for the lease.
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

        # One at a time waits for the lease itself. Who lets go has to queue here behind it.
        with open_lease(folder / "host.next") as turn:
            is_held = wait_for_lock(turn, is_over) and wait_for_lock(
                lease, is_over, is_shared=is_shared
            )
        if is_held:
            sign(lease, purpose)
        yield is_held


def runtime_folder() -> Path:
    """A folder that every process of this user on this host finds, and nobody else may write.

    Raises:
        PermanentError: another user has taken its name.
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
        raise _unsafe(folder, "it is a link, no folder, or another user's")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise _unsafe(folder, "other users may open it")
    return folder


def _unsafe(folder: Path, why: str) -> PermanentError:
    return PermanentError(
        f"the lease of this host cannot be kept in {folder}: {why}",
        "remove it, or set XDG_RUNTIME_DIR to a folder of your own",
    )

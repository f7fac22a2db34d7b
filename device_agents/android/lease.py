"""One process at a time uses a phone, however many adb servers and serials lead to it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from device_agents.errors import PermanentError, TransientError


@contextmanager
def phone_lease(serial_hash: str, folder: Path | None = None) -> Iterator[None]:
    """Holds a phone until the end of the block; the system frees it when this process dies.

    Args:
        serial_hash: of the phone's own serial number (`PhoneFacts.serial_hash`).
        folder: of the locks; the user's own unless given.

    Raises:
        TransientError: another process, or another thread of this one, holds it.
        PermanentError: the folder of the locks belongs to someone else.
    """
    path = (folder or lease_folder()) / f"phone-{serial_hash[:32]}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def lease_folder() -> Path:
    """The user's own folder of locks, made when it is not there."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime) / "fleetrank" if runtime else Path(f"/tmp/fleetrank-{os.getuid()}")  # noqa: S108
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid != os.getuid():
        raise PermanentError(f"{folder} belongs to someone else", "set XDG_RUNTIME_DIR")
    return folder


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 20, 0).decode("ascii", errors="replace").strip()
        raise TransientError(
            f"the phone is in use by process {holder or '?'} of this host",
            "wait until it ends; only one process may measure on a phone",
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

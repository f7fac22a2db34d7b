"""Only one process uses a phone at a time, also if several adb servers or serials reach it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetrank.device_agents.errors import TransientError
from fleetrank.foundation.lease import (
    give_up_at_once,
    holder,
    open_lease,
    runtime_folder,
    sign,
    wait_for_lock,
)


@contextmanager
def phone_lease(
    serial_hash: str, *, purpose: str = "a measurement on it", folder: Path | None = None
) -> Iterator[None]:
    """Locks a phone until the end of the block; the system releases the lock if the process dies.

    Args:
        serial_hash: of the phone's own serial number (`PhoneFacts.serial_hash`).
        purpose: who holds it and why; shown to processes that find it in use.
        folder: folder of the leases; the user's own folder if not given.

    Raises:
        TransientError: another process, or another thread of this one, holds it.
        PermanentError: no safe folder for the lease exists.
    """
    with open_lease((folder or runtime_folder()) / f"phone-{serial_hash[:32]}.lease") as lease:
        if not wait_for_lock(lease, give_up_at_once):
            raise TransientError(
                f"the phone is in use: {holder(lease)}",
                "wait until it is released; only one process may measure on a phone",
            )
        sign(lease, purpose)
        yield

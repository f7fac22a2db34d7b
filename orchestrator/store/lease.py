"""One driver per sweep: a lock that the system lets go of when its holder dies."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from fleetrank.device_agents.host.file_lease import holder, open_lease, sign, wait_for_lock
from fleetrank.orchestrator.errors import UsageError

_PATIENCE_S = 1.0
"""`sweep status` holds the lock for an instant; a driver holds it for the whole sweep."""


@contextmanager
def sweep_lease(path: Path) -> Iterator[None]:
    """Holds the lease while the block runs; one left by a dead driver is taken over.

    A lock and not a file that merely exists: the system frees it however its holder ends, so that
    no stale one has to be told from a live one.

    Raises:
        UsageError: another live process holds it; names that process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline_s = monotonic() + _PATIENCE_S
    with open_lease(path) as file:
        if not wait_for_lock(file, lambda: monotonic() >= deadline_s):
            raise UsageError(
                f"{path.stem} is being run by another process: {holder(file)}",
                "wait for it, or end that process and run `fleetrank sweep resume`",
            )
        if not path.exists():
            raise UsageError(
                f"{path.stem} was deleted meanwhile", "`fleetrank results list` lists the sweeps"
            )
        sign(file, f"sweep {path.stem}")
        yield

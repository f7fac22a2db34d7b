"""Locks the SM clock for one repeat, only on request, and always unlocks it afterwards.

NVML does not report whether clocks are locked, so unlocking returns them to the driver's control.
A lock that another program set is lost.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from fleetrank.device_agents.cuda.choice import uuid_hash
from fleetrank.device_agents.cuda.library import Gpu, GpuLibrary
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.lease import (
    give_up_at_once,
    is_locked,
    open_lease,
    runtime_folder,
    wait_for_lock,
)


@contextmanager
def held_clock(library: GpuLibrary, gpu: Gpu, mhz: int | None) -> Iterator[str | None]:
    """Yields the outcome: 'locked at 1410 MHz', 'not allowed', or `None` if no lock is requested.

    A file beside the host's lease exists while the clock is locked, and its holder locks the file.
    If the file has no live holder, a process died in between: see `free_forgotten`.
    """
    if mhz is None:
        yield None
        return
    path = runtime_folder() / _file_name(gpu)
    with open_lease(path) as note:
        wait_for_lock(note, give_up_at_once)
        is_held = library.lock_clocks(gpu, mhz)
        try:
            yield f"locked at {mhz} MHz" if is_held else "not allowed"
        finally:
            if not is_held or _let_go(library, gpu):
                path.unlink(missing_ok=True)


def free_forgotten(library: GpuLibrary, gpu: Gpu) -> bool:
    """Unlocks a clock whose holder died; returns whether there was one."""
    path = runtime_folder() / _file_name(gpu)
    if not path.exists() or is_locked(path):
        return False
    if _let_go(library, gpu):
        path.unlink(missing_ok=True)
    return True


def _let_go(library: GpuLibrary, gpu: Gpu) -> bool:
    try:
        return library.unlock_clocks(gpu)
    except FleetError:
        return False  # a GPU off the bus; the file stays, and the next repeat tries again


def _file_name(gpu: Gpu) -> str:
    return f"clock-{uuid_hash(gpu.parent_uuid or gpu.uuid)}"

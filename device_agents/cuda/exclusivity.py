"""Finds other processes on the GPU: pure.

In a container the driver may list processes by the host's numbers, or without numbers. Then the
number alone does not identify our process. Time does: a list read before our process opened the
GPU contains only other processes, even if one of them has the same number.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath

from fleetrank.device_agents.cuda.library import GpuProcess
from fleetrank.device_agents.errors import UnfitConditionsError

_BROKERS = frozenset({"nvidia-cuda-mps-server"})
"""Listed beside the processes they pass work on for; they compute nothing themselves."""

Processes = Sequence[GpuProcess] | None


def users(processes: Processes) -> list[GpuProcess]:
    """The processes that may compute something."""
    return [it for it in processes or () if PurePosixPath(it.name or "").name not in _BROKERS]


def refuse_company(before: Processes) -> None:
    """Raises an error if other processes use the GPU.

    Args:
        before: the list before this process opened the GPU; `None` if the driver gives no list.

    Raises:
        UnfitConditionsError: the message names the processes.
    """
    others = users(before)
    if others:
        names = ", ".join(f"{it.name or 'a process'} ({it.pid})" for it in others[:5])
        raise UnfitConditionsError(
            f"{len(others)} other processes use the GPU: {names}",
            "end them, or set the device's option others to flag, to measure beside them",
        )


def own_process(before: Processes, now: Processes, pid: int) -> GpuProcess | None:
    """This process in a list; `None` if it cannot be identified."""
    new = _new(before, now)
    listed = next((it for it in new if it.pid == pid), None)
    if listed is not None or before is None:
        return listed
    return new[0] if len(new) == 1 else None


def count_others(before: Processes, now: Processes, pid: int, *, is_open: bool) -> int | None:
    """Counts processes other than this one; `None` if the driver does not list them.

    If our process cannot be identified, one of the new processes is assumed to be it.

    Args:
        before: the list before this process opened the GPU.
        now: the list now.
        pid: number of our process.
        is_open: this process has opened the GPU. If it is missing in the list, others may be too.
    """
    if now is None:
        return None
    n_users = len(users(now))
    if own_process(before, now, pid) is not None or _new(before, now):
        return n_users - 1
    return None if is_open and n_users == 0 else n_users


def _new(before: Processes, now: Processes) -> list[GpuProcess]:
    """Counts by number: several processes may have no number, and all of these are listed as 0."""
    known = Counter(it.pid for it in users(before))
    new = []
    for process in users(now):
        if known[process.pid] > 0:
            known[process.pid] -= 1
        else:
            new.append(process)
    return new

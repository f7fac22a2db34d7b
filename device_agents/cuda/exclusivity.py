"""Who else uses the GPU: pure.

In a container the driver may list processes by numbers of the host, or by none, so that the own
one cannot be told by its number alone. It can by time: the list taken before it opened the GPU
holds only others, even one that happens to have the same number.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath

from fleetrank.device_agents.cuda.library import GpuProcess
from fleetrank.device_agents.errors import UnfitConditionsError

_BROKERS = frozenset({"nvidia-cuda-mps-server"})
"""Listed beside the processes they hand work on for, and do none of their own."""

Processes = Sequence[GpuProcess] | None


def users(processes: Processes) -> list[GpuProcess]:
    """Those that may compute something."""
    return [it for it in processes or () if PurePosixPath(it.name or "").name not in _BROKERS]


def refuse_company(before: Processes) -> None:
    """Refuses a GPU that others use.

    Args:
        before: what was listed before this process opened the GPU; `None` when nothing is told.

    Raises:
        UnfitConditionsError: names them.
    """
    others = users(before)
    if others:
        names = ", ".join(f"{it.name or 'a process'} ({it.pid})" for it in others[:5])
        raise UnfitConditionsError(
            f"{len(others)} other processes use the GPU: {names}",
            "end them, or give the device the option others: flag to measure beside them",
        )


def own_process(before: Processes, now: Processes, pid: int) -> GpuProcess | None:
    """This process in a list; `None` where it cannot be told from others."""
    new = _new(before, now)
    listed = next((it for it in new if it.pid == pid), None)
    if listed is not None or before is None:
        return listed
    return new[0] if len(new) == 1 else None


def count_others(before: Processes, now: Processes, pid: int, *, is_open: bool) -> int | None:
    """Processes beside this one; `None` when the driver does not list them.

    Where the own one cannot be told, one of those that are new is taken for it.

    Args:
        before: what was listed before this process opened the GPU.
        now: what is listed now.
        pid: the own number.
        is_open: this process has opened the GPU. A list without it then hides others as well.
    """
    if now is None:
        return None
    n_users = len(users(now))
    if own_process(before, now, pid) is not None or _new(before, now):
        return n_users - 1
    return None if is_open and n_users == 0 else n_users


def _new(before: Processes, now: Processes) -> list[GpuProcess]:
    """Counted by number: several may have none, and are then all listed as 0."""
    known = Counter(it.pid for it in users(before))
    new = []
    for process in users(now):
        if known[process.pid] > 0:
            known[process.pid] -= 1
        else:
            new.append(process)
    return new

"""Who else uses the GPU: pure.

In a container the driver lists processes by numbers of the host, so that the own one cannot be
told by its number. It can by time: the list taken before it opened the GPU holds only others.
"""

from collections.abc import Sequence

from device_agents.cuda.library import GpuProcess
from device_agents.errors import UnfitConditionsError

Processes = Sequence[GpuProcess] | None


def refuse_company(before: Processes) -> None:
    """Refuses a GPU that others use.

    Args:
        before: what was listed before this process opened the GPU; `None` when nothing is told.

    Raises:
        UnfitConditionsError: names them.
    """
    if before:
        names = ", ".join(f"{it.name or 'a process'} ({it.pid})" for it in before[:5])
        raise UnfitConditionsError(
            f"{len(before)} other processes use the GPU: {names}",
            "end them, or give the device the option others: flag to measure beside them",
        )


def own_process(before: Processes, now: Processes, pid: int) -> GpuProcess | None:
    """This process in a list; `None` where it cannot be told from others."""
    if now is None:
        return None
    listed = next((it for it in now if it.pid == pid), None)
    if listed is not None or before is None:
        return listed
    known = {it.pid for it in before}
    new = [it for it in now if it.pid not in known]
    return new[0] if len(new) == 1 else None


def count_others(before: Processes, now: Processes, pid: int) -> int | None:
    """Processes beside this one; `None` when the driver does not list them.

    Where the own one cannot be told, one of those that are new is taken for it.
    """
    if now is None:
        return None
    own = own_process(before, now, pid)
    if own is not None:
        return len(now) - 1
    known = {it.pid for it in before or ()}
    return max(len(now) - (1 if any(it.pid not in known for it in now) else 0), 0)

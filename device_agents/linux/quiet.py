"""Is the host quiet enough to measure on? Asked before a repeat, where the sweep wants it."""

import time
from collections.abc import Callable

from fleetrank.device_agents.errors import NotFitError
from fleetrank.device_agents.flags import MAX_BUSY_SHARE, MAX_STEAL_SHARE
from fleetrank.device_agents.linux.conditions import CpuTime, read_cpu_time, shares

_WINDOW_S = 1.0
"""A hundred ticks of each core."""
_ASK_AGAIN_S = 5.0
"""Longer than the window, so that asking itself does not hold the host."""


def require_quiet(
    limit_s: float,
    *,
    read: Callable[[], CpuTime | None] = read_cpu_time,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Looks for a second at what other processes and the hypervisor use.

    The limits are those of the flag `busy_host`. A system that does not report its use is taken as
    quiet: the row has no figure then, and no flag.

    Args:
        limit_s: how long the caller may ask in all.
        read: time of all cores now.
        sleep: waits.

    Raises:
        NotFitError: the host is busy; ask again.
    """
    before = read()
    sleep(_WINDOW_S)
    used = shares(before, read(), 0.0)
    if used is None:
        return
    busy, steal = used
    if busy <= MAX_BUSY_SHARE and steal <= MAX_STEAL_SHARE:
        return
    raise NotFitError(
        f"the host is busy: others use {busy:.0%} of its cores, the hypervisor {steal:.0%}",
        "stop other programs, or remove `quiet` from `hosts:` in the sweep file",
        _ASK_AGAIN_S,
        limit_s,
    )

"""Kills the processes that a child started and that left its group, such as daemons.

They are found by a variable of their environment, which they inherit through any number of forks. A
process that clears its environment and leaves the group is not found. Only a control group would
hold that one, and creating a control group needs privileges.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

_ROUNDS = 10
"""Searches, until one finds none; more than two only if the processes multiply."""
_START_TIME = 19
"""Position of the start time after the name. Source: proc_pid_stat(5), field 22, in clock ticks."""


def new_mark() -> str:
    """A name for a variable in the environment of one child."""
    return f"FLEETRANK_CHILD_{os.urandom(8).hex()}"


def kill_marked(mark: str, leader: int) -> None:
    """Kills every process with this variable; does nothing on a system without procfs.

    Args:
        mark: the name of the variable.
        leader: id of the child, which has not been collected; older processes are not looked at.
    """
    since = _started(leader)
    if since is None:
        return
    killed = {leader}
    for _ in range(_ROUNDS):
        found = [pid for pid in _pids_since(since) if pid not in killed and _is_marked(pid, mark)]
        if not found:
            return
        for pid in found:
            _kill(pid, mark)
        killed.update(found)


def _pids_since(since: int) -> Iterator[int]:
    """Processes that started then or later; the environment of an old one may block its reader."""
    with contextlib.suppress(OSError):
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and (_started(int(entry.name)) or 0) >= since:
                yield int(entry.name)


def _started(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None  # it has ended
    return int(text.rpartition(b")")[2].split()[_START_TIME])


def _is_marked(pid: int, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False  # it has ended, or belongs to another user


def _kill(pid: int, mark: str) -> None:
    """Kills the process, but not another one that got the same number meanwhile."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            if _is_marked(pid, mark):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)

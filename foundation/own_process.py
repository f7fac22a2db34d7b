"""What a child process does to itself before its work starts; `supervised_child` is its parent.

The measuring worker imports this module before it measures memory: keep its imports few.
"""

import ctypes
import os
import resource
import signal
import stat
import sys
import threading
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # Source: linux/prctl.h
_LOWEST = 19
"""Source: sched(7); ioprio_set(2): the priority of disks follows it."""


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent, the `reaper`, ends.

    The request is lost if the parent has already ended; `exit_when_input_ends` covers that.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def exit_when_input_ends(file_descriptor: int, hear: Callable[[bytes], None] | None = None) -> None:
    """Ends this process when the other end of its standard input is closed.

    A file as input, as in a person's shell, ends at once, which says nothing about the caller.

    Args:
        file_descriptor: of the standard input.
        hear: called on another thread with each part of the input; `None` drops the input.
    """
    if stat.S_ISREG(os.fstat(file_descriptor).st_mode):
        return

    def wait() -> None:
        while received := os.read(file_descriptor, 4096):
            if hear is not None:
                hear(received)
        os._exit(1)

    threading.Thread(target=wait, name="stdin-watch", daemon=True).start()


def lower_priority() -> None:
    """Gives this process the lowest ordinary priority, of cores and of disks; it cannot be undone.

    For one without threads: a thread that runs keeps its priority. Not `SCHED_IDLE`, which gets a
    fifth of that, 0.3 % of a core, on a host that is always busy with other programs.
    """
    os.nice(_LOWEST)


def keep_stdout_for_the_result() -> int:
    """Redirects descriptor 1 to standard error, so that output of libraries cannot mix in.

    Returns the descriptor that the result is written to.
    """
    result_fd = os.dup(1)
    os.dup2(2, 1)
    return result_fd


def limit_memory(limit_bytes: int | None) -> None:
    """Makes allocations beyond the limit fail inside this process, not in the whole machine.

    The address space is not limited: runtimes reserve far more of it than they use. `None` sets no
    limit.
    """
    if limit_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))


def read_line(file_descriptor: int) -> str:
    """Reads one line, or all of the input if it ends earlier."""
    received = bytearray()
    while not received.endswith(b"\n"):
        chunk = os.read(file_descriptor, 65_536)
        if not chunk:
            break
        received += chunk
    return received.decode("utf-8", errors="replace")


def write_all(file_descriptor: int, data: bytes) -> None:
    """Writes all bytes, also into a pipe that takes only a part at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(file_descriptor, view) :]

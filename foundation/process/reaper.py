"""Starts a program, and stays until the program and all that it started have ended.

`supervised_child` puts this file before every command. The kernel makes this process the parent of
every process that the program leaves behind, whatever its group, session or environment. When the
program ends, or on SIGTERM, all of them are killed; then this process ends as the program did.

It runs by its path, in an interpreter without `site`: keep its imports few and of the standard
library.
"""

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # Source: linux/prctl.h
_HEARD = (signal.SIGCHLD, signal.SIGTERM)


def command_of(command: Sequence[str]) -> "list[str]":
    """The command that starts this file before another command."""
    return [sys.executable, "-I", "-S", __file__, *command]


def children(parent: int) -> "list[int]":
    """Processes whose parent is this one; none on a system without procfs.

    Source: proc_pid_stat(5): the second field after the name.
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            stat = (folder / "stat").read_bytes()
            if int(stat.rpartition(b")")[2].split()[1]) == parent:
                found.append(int(folder.name))
    return found


def _main() -> None:
    # Blocked, so that none is lost between two waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    # Python ignores these two, and the program would inherit that.
    program = os.posix_spawnp(
        sys.argv[1],
        sys.argv[1:],
        os.environ,
        setsigmask=(),
        setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
    )
    # A pipe must end with the program.
    os.close(0)
    os.close(1)
    _end_as(_wait_for(program))


def _wait_for(program: int) -> int:
    """Waits until no child is left; returns how the program ended."""
    is_over, status = False, 0
    while True:
        try:
            ended, how = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if ended == program:
            is_over, status = True, how
        elif ended == 0:
            if is_over:
                for child in children(os.getpid()):
                    with suppress(OSError):  # it runs as another user: the caller gives up
                        os.kill(child, signal.SIGKILL)
            is_over |= signal.sigwait(_HEARD) == signal.SIGTERM


def _end_as(status: int) -> None:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program left its core
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (-code,))
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    _main()

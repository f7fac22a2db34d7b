"""Starts a program, and stays until the program and all that it started have ended.

`supervised_child` puts this file before every command. The kernel makes this process the parent of
every process that the program leaves behind, whatever its group, session or environment. When the
program ends, or on SIGTERM, all of them are killed; then this process ends as the program did.

It runs by its path, in an interpreter without `site`: keep its imports few and of the standard
library.
"""

import ctypes
import fcntl
import os
import resource
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # Source: linux/prctl.h
_HEARD = (signal.SIGCHLD, signal.SIGTERM)


def command_of(command: Sequence[str], line: int) -> "list[str]":
    """The command that starts this file before another command.

    Args:
        command: program and arguments.
        line: the end for reading of a pipe that no process writes to. When its other end closes,
            the caller is gone.
    """
    return [sys.executable, "-I", "-S", __file__, str(line), *command]


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
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _end_with(int(sys.argv[1]))
    # Python ignores these two, and the program would inherit that.
    program = os.posix_spawnp(
        sys.argv[2],
        sys.argv[2:],
        os.environ,
        setsigmask=(),
        setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
    )
    # A pipe must end with the program.
    os.close(0)
    os.close(1)
    _end_as(_wait_for(program))


def _end_with(line: int) -> None:
    """Asks the kernel for SIGTERM when the caller is gone.

    Not by PR_SET_PDEATHSIG, which is sent when the caller's thread ends.
    """
    os.set_inheritable(line, False)
    fcntl.fcntl(line, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(line, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(line, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        os.read(line, 1)  # it was gone before
        os.kill(os.getpid(), signal.SIGTERM)


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

"""Runs a command of fleetrank and kills its process before the Nth change of a file.

`python killed_at.py N FOLDER WORDS...`: an audit hook counts what opens a file for writing, makes,
renames or removes one below FOLDER, and sends SIGKILL to its own process instead of change N.
"""

import os
import signal
import sys
from collections.abc import Sequence

_CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "shutil.copyfile"}


def _is_change(event: str, arguments: Sequence[object]) -> bool:
    if event == "open":
        flags = arguments[2]
        return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return event in _CHANGES


def kill_before(number: int, folder: str) -> None:
    """Counts from 1; a number that is not reached kills nothing."""
    seen = 0

    def hook(event: str, arguments: Sequence[object]) -> None:
        nonlocal seen
        # A removal inside a folder names its file relative to a descriptor.
        if not _is_change(event, arguments):
            return
        names = [
            os.fsdecode(one) for one in arguments if isinstance(one, str | bytes | os.PathLike)
        ]
        if any(name.startswith(folder) or not name.startswith("/") for name in names):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


if __name__ == "__main__":
    from fleetrank.orchestrator.cli import results_command
    from fleetrank.orchestrator.cli.main import run

    assert results_command
    kill_before(int(sys.argv[1]), sys.argv[2])
    sys.exit(run(sys.argv[3:]))

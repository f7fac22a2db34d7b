"""Ends a command of fleetrank before the Nth change of a file.

An audit hook counts what opens a file for writing, makes, renames or removes one below a folder.
`dying_before` refuses this change and all later ones in this process, so that no `finally` can
tidy up; `python killed_at.py N FOLDER WORDS...` sends SIGKILL to its own process instead.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

_CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "shutil.copyfile"}


class Dead(BaseException):
    """Not an `Exception`: no command may catch it and go on."""


def _is_change(event: str, arguments: Sequence[object], folder: str) -> bool:
    if event == "open":
        flags = arguments[2]
        is_one = isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    else:
        is_one = event in _CHANGES
    if not is_one:
        return False
    names = [os.fsdecode(one) for one in arguments if isinstance(one, str | bytes | os.PathLike)]
    # A removal inside a folder names its file relative to a descriptor.
    return any(name.startswith(folder) or not name.startswith("/") for name in names)


def watch(folder: str, change: Callable[[int], None]) -> Callable[[], None]:
    """Calls `change` with 1, 2, ... before each change; returns what ends that.

    A hook cannot be removed, only silenced.
    """
    seen, is_on = 0, True

    def hook(event: str, arguments: Sequence[object]) -> None:
        nonlocal seen
        if is_on and _is_change(event, arguments, folder):
            seen += 1
            change(seen)

    def end() -> None:
        nonlocal is_on
        is_on = False

    sys.addaudithook(hook)
    return end


@contextmanager
def dying_before(number: int, folder: str) -> Iterator[list[int]]:
    """Counts from 1; the list has the changes that were refused, or stays empty."""
    refused: list[int] = []

    def change(seen: int) -> None:
        if seen >= number:
            refused.append(seen)
            raise Dead

    end = watch(folder, change)
    try:
        with suppress(Dead):
            yield refused
    finally:
        end()


def _kill_before(number: int) -> Callable[[int], None]:
    def change(seen: int) -> None:
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return change


if __name__ == "__main__":
    from fleetrank.orchestrator.cli import results_command
    from fleetrank.orchestrator.cli.main import run

    assert results_command
    watch(sys.argv[2], _kill_before(int(sys.argv[1])))
    sys.exit(run(sys.argv[3:]))

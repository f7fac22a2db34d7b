"""Shows output that is longer than the terminal in the user's pager."""

import os
import shlex
import shutil
import subprocess
import sys

from rich.console import Console

_DEFAULT = "less"
_LESS = "FRX"
"""Options of `less` if the user has set none, as Git does: quit on one screen, keep colours."""


def show(text: str, console: Console, *, has_pager: bool) -> None:
    """Writes text to the console, through $PAGER if it does not fit the terminal.

    A missing or empty $PAGER, one that cannot be started, and an input or output that is not a
    terminal print the text directly.

    Args:
        text: what the console captured; escaped already, with its colours.
        console: where it was captured.
        has_pager: whether the user allows a pager.
    """
    words = shlex.split(os.environ.get("PAGER", _DEFAULT)) if has_pager else []
    is_long = text.count("\n") >= console.size.height
    is_seen = console.is_terminal and sys.stdin is not None and sys.stdin.isatty()
    if not (words and is_long and is_seen and shutil.which(words[0])):
        console.file.write(text)
        console.file.flush()
        return
    environment = {"LESS": _LESS, **os.environ}
    # The user chooses the program, as for every other command with a pager.
    with subprocess.Popen(words, stdin=subprocess.PIPE, env=environment) as pager:
        try:
            pager.communicate(text.encode(errors="backslashreplace"))
        except KeyboardInterrupt:  # Ctrl-C is for the pager's own prompt
            pager.wait()

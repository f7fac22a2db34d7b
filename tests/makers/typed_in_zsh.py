"""Types lines into a zsh on a terminal, with the tab key at their end."""

import os
import pty
import re
import select
import time
from collections.abc import Iterable
from pathlib import Path

_LIMIT_S = 20.0
_READY = "all set"
_SETUP = """\
unsetopt beep; autoload -U compinit; compinit -D -u; source {script}
show() {{ print -r -- "<<$BUFFER>>"; zle kill-whole-line }}; zle -N show
bindkey '^T' show; bindkey '^I' complete-word; echo all' 'set
"""
_TAB, _SHOW = "\t", "\x14"


def typed_in_zsh(script: Path, folder: Path, lines: Iterable[str]) -> dict[str, str]:
    """What stands on the command line after each line and the tab key."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.update(PS1="", TERM="dumb", ZDOTDIR="/nonexistent")
        os.execvp("zsh", ["zsh", "-f", "-i"])
    try:
        os.write(terminal, _SETUP.format(script=script).encode())
        _read_until(terminal, _READY)
        return {line: _completed(terminal, line) for line in lines}
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def _completed(terminal: int, line: str) -> str:
    os.write(terminal, f"{line}{_TAB}{_SHOW}".encode())
    return re.findall(r"<<(.*?)>>", _read_until(terminal, ">>"), re.DOTALL)[-1]


def _read_until(terminal: int, mark: str) -> str:
    text, end_s = "", time.monotonic() + _LIMIT_S
    while mark not in text:
        assert time.monotonic() < end_s, text
        if select.select([terminal], [], [], 0.1)[0]:
            text += os.read(terminal, 65536).decode(errors="replace")
    return text

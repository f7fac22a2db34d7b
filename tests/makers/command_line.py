"""Runs the installed command as a person would, and says what it cost."""

import os
import pty
import resource
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

COMMAND = Path(sys.executable).with_name("fleetrank")
TIME_LIMIT_S = 60
"""Only ends what hangs; how long work takes is judged by processor time."""
_MEMORY_LIMIT = 6 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How one call ended; `stderr` is empty where a terminal took both streams."""

    code: int
    stdout: str
    stderr: str
    cpu_s: float


def run_command(folder: Path, *words: str, stdin: int = subprocess.DEVNULL) -> Ended:
    """Runs `fleetrank WORDS` in a folder."""
    with subprocess.Popen(
        [COMMAND, *words],
        cwd=folder,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        resource.prlimit(process.pid, resource.RLIMIT_AS, (_MEMORY_LIMIT, _MEMORY_LIMIT))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            stdout, stderr = process.communicate(timeout=TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Ended(
        code=process.returncode,
        stdout=stdout.decode(),
        stderr=stderr.decode(),
        cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    )


def run_on_terminal(folder: Path, *words: str) -> bytes:
    """What `fleetrank WORDS` sends to a terminal, byte by byte."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", "LINES": "50"}
    with subprocess.Popen(
        [COMMAND, *words], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        received = b""
        end = time.monotonic() + TIME_LIMIT_S
        while time.monotonic() < end and select.select([ours], [], [], TIME_LIMIT_S)[0]:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            received += chunk
            if not chunk:
                break
        else:
            process.kill()
    os.close(ours)
    return received

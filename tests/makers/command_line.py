"""Runs the command as a person would, in a process or in this one, and says what it cost."""

import faulthandler
import logging
import os
import pty
import re
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetrank.orchestrator.cli.main import main, run

COMMAND = Path(sys.executable).with_name("fleetrank")
TIME_LIMIT_S = 60
"""Only ends what hangs; how long work takes is judged by processor time."""
_TERMINAL = {"TERM": "xterm-256color", "COLUMNS": "200", "LINES": "50"}
_MEMORY_LIMIT = 6 << 30
_MEMORY_LEFT = 5 << 30
"""Of that limit, once the libraries of a command are loaded."""


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


def run_inside(
    folder: Path, *words: str, capture: pytest.CaptureFixture[str], stdin: int | None = None
) -> Ended:
    """Runs `fleetrank WORDS` in a folder like `run_command`, but in this process.

    Args:
        folder: the current folder of the call.
        words: what follows the name of the program.
        capture: `capfd`, which also gets what a library writes without Python.
        stdin: the standard input of the call; `None` for an empty one.
    """
    capture.readouterr()
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.chdir(folder)
        # The handlers of pytest would take what the command logs to standard error.
        patch.setattr(logging.getLogger(), "handlers", [])
        for guard in (_standard_input(stdin), _time_limit(), _memory_limit()):
            stack.enter_context(guard)
        before_s = _cpu_s()
        code = run(words)
        cpu_s = _cpu_s() - before_s
    shown = capture.readouterr()
    return Ended(code=code, stdout=shown.out, stderr=shown.err, cpu_s=cpu_s)


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@contextmanager
def _standard_input(file: int | None) -> Iterator[None]:
    own = os.dup(0)
    try:
        if file is None:
            file = os.open(os.devnull, os.O_RDONLY)
            os.dup2(file, 0)
            os.close(file)
        else:
            os.dup2(file, 0)
        yield
    finally:
        os.dup2(own, 0)
        os.close(own)


@contextmanager
def _memory_limit() -> Iterator[None]:
    """What `run_command` leaves to a command, above what other tests left in this process."""
    (size_kib,) = re.findall(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text("ascii"))
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LEFT + int(size_kib) * 1024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class Hangs(BaseException):
    """The call did not end. Not an `Exception`: no command may catch it and go on."""


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(_number: int, _frame: object) -> None:
        raise Hangs(f"the command did not end within {TIME_LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, TIME_LIMIT_S)
    # A library that does not return to the interpreter is ended with the whole process.
    faulthandler.dump_traceback_later(2 * TIME_LIMIT_S, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def draw_inside(folder: Path, *words: str) -> bytes:
    """As `run_on_terminal`, but in this process."""
    ours, theirs = pty.openpty()
    own = [os.dup(stream) for stream in range(3)]
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.extend(_sent_to(ours)))
    reader.start()
    try:
        with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
            patch.chdir(folder)
            for name, value in _TERMINAL.items():
                patch.setenv(name, value)
            patch.setattr(logging.getLogger(), "handlers", [])
            for stream, name in enumerate(("stdin", "stdout", "stderr")):
                os.dup2(theirs, stream)
                mode = "w" if stream else "r"
                file = stack.enter_context(open(stream, mode, buffering=1, closefd=False))
                patch.setattr(sys, name, file)
            patch.setattr(sys, "argv", [COMMAND.name, *words])
            stack.enter_context(suppress(SystemExit))
            main()
    finally:
        for stream, before in enumerate(own):
            os.dup2(before, stream)
            os.close(before)
        os.close(theirs)
        reader.join()
        os.close(ours)
    return b"".join(received)


def _sent_to(terminal: int) -> Iterator[bytes]:
    """What arrives until all others have closed it."""
    with suppress(OSError):
        while chunk := os.read(terminal, 65536):
            yield chunk


def run_on_terminal(folder: Path, *words: str) -> bytes:
    """What `fleetrank WORDS` sends to a terminal, byte by byte."""
    ours, theirs = pty.openpty()
    environment = os.environ | _TERMINAL
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

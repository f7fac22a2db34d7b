"""One target: inputs, the code that reads them, and what it may answer."""

import atexit
import re
import resource
import shutil
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hypothesis.strategies import SearchStrategy

from fleetrank.foundation.errors import FleetError

ROOT = Path(__file__).resolve().parents[2]
MAX_CPU_S = 3.0
"""For one input of at most 64 KiB: the slowest honest one takes a hundredth on an idle host."""
QUICK_SHARE = 0.2
"""Of a parser that takes microseconds and has one form of input."""
MEMORY_BYTES = 3 << 30
"""A reader that wants more for such an input fails with a MemoryError."""


@dataclass(frozen=True, slots=True)
class Target:
    """Attributes:
    check: reads one input and asserts what has to hold; its answer must have a text.
    inputs: bytes, whatever the reader takes, so that a case is a file.
    may_raise: the errors that are an answer; everything else is a crash.
    share: of the number of inputs that other targets get.
    name: of the folder of its recorded cases; that of its check if not given.
    """

    check: Callable[[bytes], object]
    inputs: SearchStrategy[bytes]
    may_raise: tuple[type[Exception], ...] = (FleetError,)
    share: float = 1.0
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.check.__name__)


class Crash(Exception):  # noqa: N818 - what it is
    """An input that no reader may answer like this; the text has the place, not the input."""


class TooSlow(BaseException):
    """The CPU time is over. Not an `Exception`: no reader may catch it and go on."""


def judge(target: Target, data: bytes) -> None:
    """Gives one input to a target.

    Raises:
        Crash: an error of no expected kind, a property that does not hold, or too much CPU time.
    """
    started_s = time.process_time()
    crash: Crash | None = None
    try:
        with _cpu_limit(MAX_CPU_S), suppress(*target.may_raise):
            repr(target.check(data))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # A panic of a library in Rust is no Exception.
        crash = Crash(
            f"{_one_line(error)}\n{''.join(traceback.format_tb(error.__traceback__)[-6:])}"
        )
    if crash is not None:
        # Not `from`: writing out an error of Pydantic's about a large input takes minutes.
        raise crash
    cpu_s = time.process_time() - started_s
    if cpu_s > 2 * MAX_CPU_S:
        # Native code that does not return to the interpreter outlasts the timer.
        raise Crash(f"{cpu_s:.1f} s of CPU time in native code for {len(data)} bytes")


def warm_up(target: Target) -> None:
    """Pays for the imports of a target before anything is timed."""
    try:
        target.check(b"")
    except BaseException as error:
        # The same input is judged afterwards like any other.
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise


@cache
def limit_memory() -> None:
    """Holds this process to `MEMORY_BYTES` more than it has; for one that only runs targets."""
    (data_kib,) = re.findall(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text("ascii"))
    most = MEMORY_BYTES + int(data_kib) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


@cache
def scratch() -> Path:
    """A folder of this process, in memory where there is such a place; gone at its end."""
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="fleetrank-fuzz-", dir=memory if memory.is_dir() else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def as_file(data: bytes, name: str) -> Path:
    """A file with the input in it."""
    path = scratch() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@contextmanager
def _cpu_limit(seconds: float) -> Iterator[None]:
    """Raises `TooSlow` in the code inside; regular expressions look for signals, too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: object) -> None:
        raise TooSlow(f"more than {seconds:g} s of CPU time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _one_line(error: BaseException) -> str:
    try:
        with _cpu_limit(MAX_CPU_S):
            return ascii(f"{type(error).__name__}: {' '.join(str(error).split())}"[:300])
    except TooSlow:
        return f"{type(error).__name__}, whose text takes too long to write"

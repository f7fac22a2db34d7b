"""The start of every stand-in: its phone, its output, and a waiting fault that it shows.

The imitation of a program is the function `run` of the module `imitated_NAME`: a table of modules
would have to be loaded in every canned run.
"""

import importlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

from fleetrank.device_agents.errors import UnsupportedError
from phone_farm.faults import Fault, take_fault
from phone_farm.services import TEXTS

_CORE = "sys/devices/system/cpu/cpu0/cpufreq"


class Surroundings:
    """The phone's folder, read by a program that runs on it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def is_canned(self) -> bool:
        """Whether times are computed instead of measured."""
        return self._property("ro.fleetrank.virtual") == "canned"

    @property
    def seed(self) -> str:
        """The seed of the phone."""
        return self._property("ro.fleetrank.seed")

    @property
    def slowness(self) -> float:
        """Slowness of the phone now: if throttled, it is slower in proportion to its clock."""
        highest, allowed = (
            float((self._root / _CORE / name).read_text())
            for name in ("cpuinfo_max_freq", "scaling_max_freq")
        )
        return float(self._property("ro.fleetrank.slowness")) * highest / allowed

    @property
    def takes_time(self) -> bool:
        """Whether computed times also pass: the battery of an unplugged phone drains in them."""
        mark = self._root / ".phone/real_time"
        return mark.is_file() and mark.stat().st_size > 0

    @contextmanager
    def quiet_host(self) -> Iterator[None]:
        """Prevents other measurements on this host while a model really runs on it."""
        from fleetrank.foundation.lease import host_lease  # a canned run does not need it

        with host_lease(f"virtual phone {self._property('ro.serialno')}"):
            yield

    def take_fault(self) -> Fault | None:
        """The fault that this run must show; it is removed now."""
        return take_fault(self._root)

    def shown(self, path: str) -> str:
        """A path as a user of the phone sees it."""
        return path.removeprefix(str(self._root))

    def log(self, tag: str, lines: Sequence[str]) -> None:
        """Appends to the phone's log, in the format `threadtime`, with the phone's clock."""
        offset_s = int((self._root / ".phone/clock_offset_s").read_text())
        now = datetime.now(UTC) + timedelta(seconds=offset_s)
        stamp = f"{now:%m-%d %H:%M:%S}.{now.microsecond // 1000:03d}"
        pid = os.getpid() % 100_000
        text = "".join(f"{stamp} {pid:5d} {pid:5d} I {tag}: {line}\n" for line in lines)
        with (self._root / ".phone/logcat").open("a") as file:
            file.write(text)

    def _property(self, name: str) -> str:
        return (self._root / ".phone/properties" / name).read_text().strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImitatedOutput:
    """The complete output of one run of a program.

    Attributes:
        text: for standard output.
        log: lines for the phone's log, without stamp and tag.
        result: content of the result file.
    """

    text: str = ""
    log: tuple[str, ...] = ()
    result_path: str | None = None
    result: bytes | None = None
    exit_code: int = 0


Imitation = Callable[[Sequence[str], Surroundings], ImitatedOutput]

LOG_TAG = "ExecuTorch"
"""The only one of the programs that writes to the phone's log."""
GARBAGE_BYTES = 4096
SLOW_RUN_S = 3.0


def run_program(name: str) -> NoReturn:
    """Runs one stand-in as a program and ends the process."""
    root = os.environ.get("FLEETRANK_PHONE")
    if root is None:
        sys.stderr.write(f"this {name} is a stand-in that runs on a virtual phone only\n")
        sys.exit(127)
    surroundings = Surroundings(Path(root))
    module = importlib.import_module(f"{__package__}.imitated_{name}")
    imitation: Imitation = module.run
    result = imitation(sys.argv[1:], surroundings)
    sys.exit(_emit(result, surroundings))


def _emit(result: ImitatedOutput, surroundings: Surroundings) -> int:
    """Prints, logs and writes the result file, changed by a fault if there is one."""
    fault = surroundings.take_fault()
    if fault is Fault.SLOW_RUN:
        time.sleep(SLOW_RUN_S)
        fault = None
    text, log = result.text, result.log
    if fault is Fault.GARBAGE_OUTPUT:
        return _emit_garbage(result)
    if fault is not None:
        text, log = text[: len(text) // 2], log[: len(log) // 2]
    if log:
        surroundings.log(LOG_TAG, log)
    sys.stdout.write(text)
    sys.stdout.flush()
    if fault is Fault.RUNNER_CRASH:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    if fault is None:
        _write_result(result, result.result)
    return result.exit_code


def _emit_garbage(result: ImitatedOutput) -> int:
    noise = random.Random(0).randbytes(GARBAGE_BYTES)
    sys.stdout.buffer.write(noise)
    _write_result(result, noise)
    return 0


def _write_result(result: ImitatedOutput, content: bytes | None) -> None:
    if result.result_path is not None and content is not None:
        Path(result.result_path).write_bytes(content)


def flags_of(program: str) -> dict[str, str]:
    """The flags that a program knows, with their defaults."""
    lines = (TEXTS / f"{program}_flags").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def text_of(name: str, **values: object) -> str:
    """What a program prints, from the text of this name."""
    return (TEXTS / name).read_text().format(**values)


_STAND_IN = Path(__file__).with_name("stand_in")
_PREFIX = "imitated_"


def stand_in_of(program: str) -> Path:
    """Returns the stand-in, an executable script that only a virtual phone can run.

    It is one file for all programs: it imitates the program of the name that it is pushed under.

    Raises:
        UnsupportedError: no imitation of that program exists.
    """
    if program not in (known := stand_ins()):
        raise UnsupportedError(
            f"virtual phones have no stand-in for '{program}'", f"use one of {', '.join(known)}"
        )
    return _STAND_IN


def stand_ins() -> tuple[str, ...]:
    """The programs that have one."""
    modules = sorted(Path(__file__).parent.glob(f"{_PREFIX}*.py"))
    return tuple(module.stem.removeprefix(_PREFIX) for module in modules)

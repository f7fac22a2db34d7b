"""The start of every stand-in: finds its phone, runs, and shows a waiting fault.

The imitation of a program is the function `run` of the module `imitated_NAME`: a table of modules
would have to be loaded in every canned run.
"""

import importlib
import os
import random
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.virtual_phone.handset.faults import Fault
from fleetrank.device_agents.virtual_phone.imitation.surroundings import (
    ImitatedOutput,
    Surroundings,
)

Imitation = Callable[[Sequence[str], Surroundings], ImitatedOutput]

LOG_TAG = "ExecuTorch"
"""The only one of the three programs that writes to the phone's log."""
GARBAGE_BYTES = 4096


def run_program(name: str) -> NoReturn:
    """Runs one stand-in as a program and ends the process."""
    root = os.environ.get("FLEETRANK_PHONE")
    if root is None:
        sys.stderr.write(f"this {name} is a stand-in that runs on a virtual phone only\n")
        sys.exit(127)
    surroundings = Surroundings(Path(root))
    if not surroundings.is_canned:
        _find_libraries()
    module = importlib.import_module(f"{__package__}.imitated_{name}")
    imitation: Imitation = module.run
    result = imitation(sys.argv[1:], surroundings)
    sys.exit(_emit(result, surroundings))


def _find_libraries() -> None:
    """Reverts the interpreter's `-S`, which saves half the time of a canned run."""
    import site

    site.main()


def _emit(result: ImitatedOutput, surroundings: Surroundings) -> int:
    """Prints, logs and writes the result file, changed by a fault if there is one."""
    fault = surroundings.take_fault()
    text, log = result.text, result.log
    if fault is Fault.GARBAGE_OUTPUT:
        return _emit_garbage(result)
    if fault is Fault.OTHER_VERSION:
        text, log = result.other_version, result.other_log
    elif fault is not None:
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
    noise = random.Random(0).randbytes(GARBAGE_BYTES)  # noqa: S311 - noise, not a secret
    sys.stdout.buffer.write(noise)
    _write_result(result, noise)
    return 0


def _write_result(result: ImitatedOutput, content: bytes | None) -> None:
    if result.result_path is not None and content is not None:
        with Path(result.result_path).open("ab" if result.appends else "wb") as file:
            file.write(content)


_STAND_IN = Path(__file__).with_name("stand_in")
_PREFIX = "imitated_"


def stand_in_of(program: str) -> Path:
    """Returns the stand-in, an executable script that only a virtual phone can run.

    It is one file for all programs: it imitates the program of the name that it is pushed under.

    Raises:
        UnsupportedError: no imitation of that program exists.
    """
    modules = sorted(Path(__file__).parent.glob(f"{_PREFIX}*.py"))
    known = [module.stem.removeprefix(_PREFIX) for module in modules]
    if program not in known:
        raise UnsupportedError(
            f"virtual phones have no stand-in for '{program}'", f"use one of {', '.join(known)}"
        )
    return _STAND_IN

"""The start of every stand-in: finds its phone, runs, and shows a waiting fault."""

import importlib
import os
import random
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from fleetrank.device_agents.virtual_phone.handset.faults import Fault
from fleetrank.device_agents.virtual_phone.imitation.result import ToolResult
from fleetrank.device_agents.virtual_phone.imitation.surroundings import Surroundings

Tool = Callable[[Sequence[str], Surroundings], ToolResult]

_MODULES = {
    "benchmark_model": "fleetrank.device_agents.virtual_phone.imitation.imitated_benchmark_model",
    "executor_runner": "fleetrank.device_agents.virtual_phone.imitation.imitated_executor_runner",
    "onnxruntime_perf_test": "fleetrank.device_agents.virtual_phone.imitation.imitated_perf_test",
}
LOG_TAG = "ExecuTorch"
"""The only one of the three programs that writes to the phone's log."""
GARBAGE_BYTES = 4096


def run_tool(name: str) -> NoReturn:
    """Runs one stand-in as a program and ends the process."""
    root = os.environ.get("FLEETRANK_PHONE")
    if root is None:
        sys.stderr.write(f"this {name} is a stand-in that runs on a virtual phone only\n")
        sys.exit(127)
    surroundings = Surroundings(Path(root))
    if not surroundings.is_canned:
        _find_libraries()
    tool: Tool = importlib.import_module(_MODULES[name]).run
    result = tool(sys.argv[1:], surroundings)
    sys.exit(_emit(result, surroundings))


def _find_libraries() -> None:
    """Reverts the interpreter's `-S`, which saves half the time of a canned run."""
    import site

    site.main()


def _emit(result: ToolResult, surroundings: Surroundings) -> int:
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


def _emit_garbage(result: ToolResult) -> int:
    noise = random.Random(0).randbytes(GARBAGE_BYTES)  # noqa: S311 - noise, not a secret
    sys.stdout.buffer.write(noise)
    _write_result(result, noise)
    return 0


def _write_result(result: ToolResult, content: bytes | None) -> None:
    if result.result_path is not None and content is not None:
        with Path(result.result_path).open("ab" if result.appends else "wb") as file:
            file.write(content)

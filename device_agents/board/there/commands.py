"""What a board is asked before its host can run: one line of JSON in, one line of JSON out.

An expected failure is a reply with `error`.
"""

import contextlib
import json
import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fleetrank.device_agents.board.there.environment import make_environment
from fleetrank.device_agents.board.there.join import REPLY_MARK
from fleetrank.device_agents.board.there.judged_agent import device_facts
from fleetrank.device_agents.board.there.readings import (
    read_facts_text,
    read_identity,
    read_state_text,
)
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.foundation.codec import to_plain
from fleetrank.foundation.errors import FleetError

_IMPORT = """
import importlib, importlib.metadata, sys
importlib.import_module(sys.argv[1])
print("\\n" + importlib.metadata.version(sys.argv[2]))
"""
_IMPORT_LIMIT_S = 120.0
"""PyTorch needs half a minute for its first import from a memory card."""

Request = Mapping[str, Any]
"""Sent by the same version, so its values are of the right types."""
Reply = Mapping[str, object]


def main() -> int:
    """Runs one command, or the host; returns the exit code."""
    # The code lies in `FOLDER/code/SHA256/`.
    folder = Path(sys.argv[0]).parents[2]
    if sys.argv[1] == "host":
        from fleetrank.device_agents.board.there.host_process import run_host

        run_host(folder)
        return 0
    request = json.loads(sys.stdin.buffer.readline())
    try:
        reply = _COMMANDS[sys.argv[1]](folder, request)
    except (FleetError, OSError) as error:
        reply = {"error": to_plain(failure_from_error(error, None))}
    with contextlib.suppress(BrokenPipeError):
        print(f"{REPLY_MARK}{json.dumps(reply)}", flush=True)  # noqa: T201 - the driver reads it
    return 0


def _probe(_folder: Path, request: Request) -> Reply:
    libraries = request["libraries"].items()
    return {
        "facts": to_plain(device_facts(request.get("gpu"))),
        "identity": read_identity(),
        "text": {**read_facts_text(), **read_state_text()},
        **_python(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "libraries": {name: _version(*library) for name, library in libraries},
    }


def _version(module: str, distribution: str) -> "dict[str, str]":
    """Imports a library in a child: on some boards an import ends with an illegal instruction."""
    command = [sys.executable, "-c", _IMPORT, module, distribution]
    try:
        done = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=_IMPORT_LIMIT_S,
            # ONNX Runtime reports its import otherwise, as `OnnxRunner` says.
            env={"ORT_DISABLE_TELEMETRY": "1", **os.environ},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"problem": f"its import takes more than {_IMPORT_LIMIT_S:g} s"}
    if done.returncode < 0:
        return {"problem": f"its import ends with signal {-done.returncode}"}
    lines = (done.stdout if done.returncode == 0 else done.stderr).split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return {"version" if done.returncode == 0 else "problem": last.strip()}


def _python() -> Reply:
    return {
        "python": platform.python_version(),
        "platform": sysconfig.get_platform(),
        "libc": " ".join(platform.libc_ver()),
    }


def _setup(folder: Path, request: Request) -> Reply:
    make_environment(folder, folder / "files" / request["name"], request["requirements"])
    return {"installed": request["requirements"]}


_COMMANDS: "dict[str, Callable[[Path, Request], Reply]]" = {
    "probe": _probe,
    "platform": lambda _folder, _request: _python(),
    "setup": _setup,
}

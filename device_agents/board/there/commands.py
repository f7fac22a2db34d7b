"""The commands of a board: one word as argument, one line of JSON in, one line of JSON out.

The reply follows `REPLY_MARK`: a login shell can print what it likes before it. An expected failure
is a reply with `error`.
"""

import base64
import contextlib
import json
import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from fleetrank.device_agents.board.there.board_store import BoardStore
from fleetrank.device_agents.board.there.environment import make_environment
from fleetrank.device_agents.board.there.keeper import (
    ACKNOWLEDGE_S,
    BoardWork,
    board_lock,
    fetch,
    measure,
)
from fleetrank.device_agents.board.there.line import Line
from fleetrank.device_agents.board.there.readings import (
    read_boot,
    read_facts_text,
    read_identity,
    read_state_text,
)
from fleetrank.device_agents.contract.agent import Agent, DeviceFacts
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.protocol import decode_request
from fleetrank.device_agents.contract.task import InferTask, OptionValue
from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.device_agents.host.cpu_facts import read_facts
from fleetrank.foundation.codec import to_plain
from fleetrank.foundation.errors import FleetError

if TYPE_CHECKING:
    from fleetrank.device_agents.cuda.nvml import Nvml

# Runs a file over given inputs on a board; the store keeps the outputs until they are fetched.


def infer(
    store: BoardStore, agent: Agent, request: str, inputs_name: str, line: Line
) -> "dict[str, object]":
    """Runs an `InferTask`; the caller holds the board. Its inputs are removed in any case.

    Args:
        store: of this board.
        agent: of its processor, or of its GPU.
        request: the task as `contract.protocol` writes it, with paths on this board.
        inputs_name: of its inputs in the store.
        line: to the host; the worker ends when it does.

    Returns:
        `failure`; or `name` and `size` of the outputs in the store.
    """
    task = decode_request(request)
    if not isinstance(task, InferTask):
        raise TypeError("the request is not an inference")
    try:
        failure = agent.infer(replace(task, outputs_path=str(store.outputs)), line.is_gone)
        if failure is not None:
            return {"failure": to_plain(failure)}
        name, size = store.adopt_outputs()
        return {"name": name, "size": size}
    finally:
        store.outputs.unlink(missing_ok=True)
        store.remove(inputs_name)


Options = Mapping[str, OptionValue]

# The agent that a board uses for itself: of its processor, or of one NVIDIA GPU.
#
# Agents are imported only when they are needed: that of the processor needs NumPy, which a board
# may not have yet when it is registered.


def device_facts(gpu: "Options | None") -> DeviceFacts:
    """The facts of the processor, or of the GPU with these options of a `cuda` device.

    Raises:
        FleetError: the driver, its binding for Python or the GPU is missing.
    """
    return read_facts() if gpu is None else local_agent(gpu).probe()


def local_agent(gpu: "Options | None") -> Agent:
    """An agent whose workers are started from the file that was sent here.

    Args:
        gpu: options of a `cuda` device; `None` for the processor.
    """
    worker = (sys.executable, sys.argv[0], "worker")
    if gpu is None:
        from fleetrank.device_agents.cpu import CpuAgent

        return CpuAgent({}, command=worker)
    from fleetrank.device_agents.cuda.agent import CudaAgent

    return CudaAgent(gpu, open_library=_open_nvml, command=worker)


def _open_nvml() -> "Nvml":
    from fleetrank.device_agents.cuda import nvml

    try:
        return nvml.open_nvml()
    except MissingLibraryError as error:
        raise MissingLibraryError(
            error.message, f"on the board: {sys.executable} -m pip install nvidia-ml-py"
        ) from error


REPLY_MARK = "fleetrank-board:"
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
    """Runs one command; returns the exit code."""
    stream = sys.stdin.buffer
    command = _COMMANDS[sys.argv[1]]
    request = json.loads(stream.readline())
    # The code lies in `FOLDER/code/SHA256/`.
    code = Path(sys.argv[0]).absolute().parent
    try:
        reply = command(BoardStore(code.parents[1], code.name), request, stream)
    except (FleetError, OSError) as error:
        reply = {"error": to_plain(failure_from_error(error, None))}
    if reply is not None:
        _answer(json.dumps(reply))
    sys.stdout.flush()
    # A thread that waits for input must not hold the process.
    os._exit(0)


def _answer(reply: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(f"{REPLY_MARK}{reply}", flush=True)  # noqa: T201 - the host reads it


def _probe(_store: BoardStore, request: Request, _stream: BinaryIO) -> Reply:
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


def _prepare(store: BoardStore, request: Request, _stream: BinaryIO) -> Reply:
    return {
        "missing": store.missing(request["names"]),
        "paths": {name: str(store.path(name)) for name in request["names"]},
        "identity": read_identity(),
        "boot": read_boot(),
        "state": read_state_text(),
    }


def _python() -> Reply:
    return {
        "python": platform.python_version(),
        "platform": sysconfig.get_platform(),
        "libc": " ".join(platform.libc_ver()),
    }


def _setup(store: BoardStore, request: Request, _stream: BinaryIO) -> Reply:
    make_environment(store.folder, store.path(request["name"]), request["requirements"])
    return {"installed": request["requirements"]}


def _held(store: BoardStore, request: Request, line: Line, work: "Callable[[], Reply]") -> Reply:
    """Does something while it holds the board; says who has it if the wait was in vain."""
    with board_lock(store.folder, request["purpose"], request["wait_s"], line) as other:
        return work() if other is None else {"busy": other}


def _put(store: BoardStore, request: Request, stream: BinaryIO) -> Reply:
    def work() -> Reply:
        store.receive(stream, request["name"], request["size"], request["in_use"])
        return {"stored": request["name"]}

    # Its line is not watched: the file follows on the same stream.
    return _held(store, request, Line(stream), work)


def _measure(store: BoardStore, request: Request, stream: BinaryIO) -> None:
    line = Line(stream)
    line.watch()
    work = BoardWork(local_agent(request.get("gpu")), request["tasks"])
    reply = measure(store, work, request["purpose"], request["wait_s"], line)
    if reply is not None:
        _reply_kept(store, request["task_id"], reply, line)


def _fetch(store: BoardStore, request: Request, stream: BinaryIO) -> None:
    line = Line(stream)
    line.watch()
    task_id = request["task_id"]
    _reply_kept(store, task_id, fetch(store, task_id, request["wait_s"], line), line)


def _infer(store: BoardStore, request: Request, stream: BinaryIO) -> Reply:
    line = Line(stream)
    line.watch()
    agent = local_agent(request.get("gpu"))
    task, inputs = request["task"], request["inputs"]
    return _held(store, request, line, lambda: infer(store, agent, task, inputs, line))


def _take(store: BoardStore, request: Request, _stream: BinaryIO) -> Reply:
    return {"content": base64.b64encode(store.take(request["name"], request["offset"])).decode()}


def _reply_kept(store: BoardStore, task_id: str, reply: str, line: Line) -> None:
    """Sends a reply; removes the kept result when the host has it.

    The reply can be that the board is in use: then an earlier result stays.
    """
    _answer(reply)
    if line.wait_acknowledged(ACKNOWLEDGE_S) and store.kept(task_id) == reply:
        store.forget(task_id)


_COMMANDS: "dict[str, Callable[[BoardStore, Request, BinaryIO], Reply | None]]" = {
    "probe": _probe,
    "prepare": _prepare,
    "platform": lambda _store, _request, _stream: _python(),
    "setup": _setup,
    "put": _put,
    "measure": _measure,
    "fetch": _fetch,
    "infer": _infer,
    "take": _take,
}

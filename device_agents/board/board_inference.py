"""Runs a file over given inputs on a board: sends them, and fetches the outputs."""

import base64
import hashlib
from pathlib import Path

from fleetrank.device_agents.board.board_files import (
    files_of,
    no_result,
    prepare,
    with_infer_paths,
)
from fleetrank.device_agents.board.board_link import SHORT_S, BoardLink
from fleetrank.device_agents.board.options import BoardOptions
from fleetrank.device_agents.contract.agent import StopRequested
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.protocol import encode_request
from fleetrank.device_agents.contract.task import InferTask
from fleetrank.foundation.codec import CodecError, from_plain
from fleetrank.foundation.files import written_aside

_PIECE_S = 240.0
"""To fetch 8 MiB as text at 100 kB/s, slower than any link that would be used, takes 112 s."""
_MAX_OUTPUT_BYTES = 8 << 30
"""A board cannot fill this host's disk. An evaluation asks for less than a hundredth of it."""


def infer_there(
    link: BoardLink, options: BoardOptions, task: InferTask, stop: StopRequested
) -> Failure | None:
    """Runs the file on the board and writes its outputs here; `None` means success.

    The caller holds this host's lease: the inputs are encrypted at full speed. A hot or slowed
    board is not refused, because it computes the same outputs.

    Raises:
        FleetError: what went wrong beside the worker there, with its remedy.
    """
    files, wait_s = files_of(task), options.max_wait_s
    ready = prepare(link, options.board_hash, files, stop)
    for file in ready.lacking:
        link.push(file, ready.names, wait_s, stop)
    request = {
        "gpu": options.gpu_options,
        "task": encode_request(with_infer_paths(task, ready.places)),
        "inputs": files[task.inputs_path].name,
        "wait_s": wait_s,
    }
    limit_s = wait_s + task.timeout_s + SHORT_S
    reply = link.ask("infer", request, timeout_s=limit_s, stop_requested=stop)
    if "failure" in reply:
        try:
            return from_plain(Failure, reply["failure"])
        except CodecError as error:
            raise no_result(error.message) from error
    name, size = reply.get("name"), reply.get("size")
    if not isinstance(name, str) or not isinstance(size, int):
        raise no_result("it names no outputs")
    if size > _MAX_OUTPUT_BYTES:
        raise no_result(f"its outputs have {size:,} bytes, and at most {_MAX_OUTPUT_BYTES:,} may")
    _fetch(link, name, size, Path(task.outputs_path), stop)
    return None


def _fetch(link: BoardLink, name: str, size: int, path: Path, stop: StopRequested) -> None:
    """Writes a file of the board here, piece by piece, if its sha256 is that of its name."""
    digest, found = hashlib.sha256(), 0
    with written_aside(path) as aside:
        with aside.open("xb") as file:
            while found < size:
                piece = _piece(link, name, found, stop)
                file.write(piece)
                digest.update(piece)
                found += len(piece)
        if not name.startswith(digest.hexdigest()):
            raise no_result("the outputs arrived damaged")


def _piece(link: BoardLink, name: str, offset: int, stop: StopRequested) -> bytes:
    request = {"name": name, "offset": offset}
    reply = link.ask("take", request, timeout_s=_PIECE_S, stop_requested=stop)
    try:
        piece = base64.b64decode(str(reply.get("content")), validate=True)
    except ValueError as error:
        raise no_result(f"the outputs are not text of bytes: {error}") from error
    if not piece:
        raise no_result("the outputs end too early")
    return piece

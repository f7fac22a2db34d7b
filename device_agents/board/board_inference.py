"""Runs a file over given inputs on a board: sends them, and fetches the outputs."""

import hashlib
import time
from pathlib import Path

from fleetrank.device_agents.board.board_files import files_of
from fleetrank.device_agents.board.board_link import SHORT_S, BoardLink, lacking, no_result
from fleetrank.device_agents.board.host_calls import Outputs
from fleetrank.device_agents.contract.agent import StopRequested
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import InferTask
from fleetrank.device_agents.errors import TimedOutError
from fleetrank.device_agents.hosts.files import with_places
from fleetrank.device_agents.hosts.messages import DeviceSpec
from fleetrank.device_agents.timing import Clock
from fleetrank.foundation.codec import CodecError, from_plain
from fleetrank.foundation.files import written_aside
from fleetrank.foundation.units import NS_PER_S

_PIECE_S = 240.0
"""To fetch 8 MiB as text at 100 kB/s, slower than any link that would be used, takes 112 s."""
_TEXT_BYTES_PER_S = 75_000
"""What that link carries when three bytes are four letters."""
_MAX_OUTPUT_BYTES = 8 << 30
"""A board cannot fill this host's disk. An evaluation asks for less than a hundredth of it."""


def infer_there(
    link: BoardLink, spec: DeviceSpec, task: InferTask, wait_s: float, stop: StopRequested
) -> Failure | None:
    """Runs the file on the board and writes its outputs here; `None` means success.

    The caller holds this host's lease: the inputs are encrypted at full speed.

    Args:
        link: to the board.
        spec: the device there.
        task: with paths of this host.
        wait_s: how long the board may wait for its turn.
        stop: ends it.

    Raises:
        FleetError: what went wrong beside the worker there, with its remedy.
    """
    files = files_of(task)
    reply = link.call("missing", tuple(files.values()), stop_requested=stop)
    for name, path in lacking(reply, files).items():
        link.send(path, name, stop)
    there = with_places(task, files.__getitem__)
    limit_s = wait_s + task.limits.timeout_s + SHORT_S
    reply = link.call("infer", spec, there, timeout_s=limit_s, stop_requested=stop)
    try:
        outputs = from_plain(Outputs, reply)
    except CodecError as error:
        raise no_result(error.message) from error
    if outputs.failure is not None:
        return outputs.failure
    if not 0 < outputs.size_bytes <= _MAX_OUTPUT_BYTES:
        raise no_result(f"its outputs have {outputs.size_bytes:,} bytes")
    fetch_file(link, outputs.name, outputs.size_bytes, Path(task.outputs_path), stop)
    return None


def fetch_file(
    link: BoardLink,
    name: str,
    size: int,
    path: Path,
    stop: StopRequested,
    clock: Clock = time.perf_counter_ns,
) -> None:
    """Writes a file of the board here, piece by piece, if its sha256 is that of its name.

    Raises:
        TimedOutError: all pieces together took longer than a slow link takes.
    """
    digest, found = hashlib.sha256(), 0
    total_s = _PIECE_S + size / _TEXT_BYTES_PER_S
    deadline_ns = clock() + int(total_s * NS_PER_S)
    with written_aside(path) as aside:
        with aside.open("xb") as file:
            while found < size:
                left_s = (deadline_ns - clock()) / NS_PER_S
                if left_s <= 0:
                    raise TimedOutError(
                        f"{link.host} sent {found:,} of {size:,} bytes of its outputs in "
                        f"{total_s:.0f} s",
                        "check that the board does not hang, and its network",
                    )
                piece = _piece(link, name, found, min(_PIECE_S, left_s), stop)
                file.write(piece)
                digest.update(piece)
                found += len(piece)
        if not name.startswith(digest.hexdigest()):
            raise no_result("the outputs arrived damaged")


def _piece(link: BoardLink, name: str, offset: int, timeout_s: float, stop: StopRequested) -> bytes:
    reply = link.call("take", name, offset, timeout_s=timeout_s, stop_requested=stop)
    try:
        piece = from_plain(bytes, reply)
    except CodecError as error:
        raise no_result(error.message) from error
    if not piece:
        raise no_result("the outputs end too early")
    return piece

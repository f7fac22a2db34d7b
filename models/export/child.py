"""The exporting child: one request on standard input, one answer on standard output."""

import ctypes
import json
import os
import resource
import signal
import sys
from pathlib import Path

from fleetrank.models.errors import ModelError
from fleetrank.models.export.messages import error_to_json, request_from_json, staged_to_json
from fleetrank.models.export.request import export_request

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Handles the request of `models.export.process`; returns 0 if it wrote an answer."""
    answer_fd = _claim_stdout()
    order = json.loads(sys.stdin.read())
    _die_with(order["parent_pid"])
    _limit_memory(order["memory_limit_bytes"])
    request = request_from_json(order["request"])
    try:
        staged = export_request(request, Path(order["out_dir"]), is_trusted=order["is_trusted"])
        answer = staged_to_json(staged)
    except ModelError as error:
        answer = error_to_json(error)
    with os.fdopen(answer_fd, "w") as stream:
        stream.write(answer)
    return 0


def _claim_stdout() -> int:
    """Reserves standard output for the answer, because exporters print progress to it."""
    answer_fd = os.dup(1)
    os.dup2(2, 1)
    return answer_fd


def _die_with(parent_pid: int) -> None:
    """Makes the kernel kill this process when its parent ends for any reason."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # the parent ended before the signal was requested
        sys.exit(1)


def _limit_memory(limit_bytes: int | None) -> None:
    if limit_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))

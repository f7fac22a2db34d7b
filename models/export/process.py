"""Runs one export in a child process, so that a crash does not end the parent."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from fleetrank.foundation.vocabulary import Format
from fleetrank.models.cards.card import ExportRequest, StagedExport
from fleetrank.models.errors import ExportError
from fleetrank.models.export.messages import request_to_json, staged_from_json

_MIB = 1 << 20
_PEAK_BYTES = {
    Format.ONNX: 1100 * _MIB,
    Format.PT2: 800 * _MIB,
    Format.TFLITE: 1500 * _MIB,
    Format.PTE: 900 * _MIB,
}
"""Highest resident size measured over the 13 built-in models, rounded up."""
_LAST_WORDS = 400
_POLL_S = 0.05
"""Polling interval; small compared with an export, which takes seconds."""


def peak_memory_estimate_bytes(request: ExportRequest) -> int:
    """Memory that an export may use; determines how many run in parallel."""
    return _PEAK_BYTES[request.format]


def export_in_child(
    request: ExportRequest,
    out_dir: Path,
    *,
    timeout_s: float,
    memory_limit_bytes: int | None,
    is_trusted: bool,
) -> StagedExport:
    """Exports in a fresh process and waits for it; may be called from several threads.

    Args:
        request: what to export.
        out_dir: where the file, its inputs and reference outputs are written.
        timeout_s: the child and all its child processes are killed after this time.
        memory_limit_bytes: RLIMIT_DATA of the child; `None` sets none.
        is_trusted: the user allowed the model's code to run.

    Raises:
        ExportError: the export failed, or the child crashed or took too long.
        UntrustedError: the export needs code that the user did not trust.
    """
    order = {
        "request": request_to_json(request),
        "out_dir": str(out_dir.resolve()),
        "memory_limit_bytes": memory_limit_bytes,
        "is_trusted": is_trusted,
        "parent_pid": os.getpid(),
    }
    # Files instead of pipes: they cannot block, and no grandchild can keep them open.
    with (
        tempfile.TemporaryFile() as question,
        tempfile.TemporaryFile() as answer,
        tempfile.TemporaryFile() as log,
    ):
        question.write(json.dumps(order).encode())
        question.seek(0)
        exit_code = _run(question, answer, log, timeout_s)
        if exit_code is None:
            raise ExportError(
                f"exporting {request.card.name} to {request.format} took longer than "
                f"{timeout_s:g} s and was stopped",
                "increase the export's time limit, or remove this model or runtime",
            )
        return _read(answer, log, exit_code, request)


def _run(question: IO[bytes], answer: IO[bytes], log: IO[bytes], timeout_s: float) -> int | None:
    """The child's exit code; `None` if it was killed after the timeout."""
    child = subprocess.Popen(
        # -P: a models/ folder in the workspace does not shadow this package.
        [sys.executable, "-P", "-m", "fleetrank.models.export"],
        stdin=question,
        stdout=answer,
        stderr=log,
        env=_environment(),
        start_new_session=True,
    )
    has_ended = False
    try:
        has_ended = _ends_within(child.pid, timeout_s)
    finally:
        # Also after a normal end, to kill remaining child processes.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        exit_code = child.wait()
    return exit_code if has_ended else None


def _ends_within(pid: int, timeout_s: float) -> bool:
    """Waits without reaping, so that the group's id is not reused before the group is killed."""
    deadline_ns = time.perf_counter_ns() + int(timeout_s * 1e9)
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.perf_counter_ns() >= deadline_ns:
            return False
        time.sleep(_POLL_S)
    return True


def _environment() -> dict[str, str]:
    """The environment of a child, with half the threads for its thread pools."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // 2)),
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def _read(
    answer: IO[bytes], log: IO[bytes], exit_code: int, request: ExportRequest
) -> StagedExport:
    answer.seek(0)
    text = answer.read().decode(errors="replace")
    if exit_code == 0:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return staged_from_json(text)
    log.seek(0)
    last_words = log.read().decode(errors="replace").strip()[-_LAST_WORDS:]
    what = f"exporting {request.card.name} to {request.format}"
    if exit_code < 0:
        name = signal.Signals(-exit_code).name
        raise ExportError(
            f"{what} was ended by {name}: {last_words or 'no output'}",
            "out of memory is the usual cause: close other programs, raise the memory limit, or "
            "export fewer models at once",
        )
    raise ExportError(
        f"{what} ended with exit code {exit_code} and no answer: {last_words}",
        "this is a bug in fleetrank or in the exporter's installation: run `fleetrank doctor`",
    )

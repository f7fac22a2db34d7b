"""Exports in a child process, so that a crash does not end the parent; and its messages.

Each message between the two is one line of JSON.
"""

import contextlib
import math
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from fleetrank.foundation.codec import CodecError, from_json, to_json
from fleetrank.foundation.supervised_child import End, SupervisedChild, exit_name
from fleetrank.models.cards.card import ExportRequest, Source, StagedExport
from fleetrank.models.errors import ExportError, UntrustedError
from fleetrank.models.export.exporters import exporter_of
from fleetrank.models.networks.build import OWN_ENTRY_PREFIX
from fleetrank.models.networks.language_cost import parameters_for


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOrder:
    """What the child does.

    Attributes:
        out_dir: where the file, its inputs and reference outputs are written.
        memory_limit_bytes: RLIMIT_DATA of the child; `None` sets none.
        is_trusted: the user allowed the model's code to run.
    """

    request: ExportRequest
    out_dir: Path
    memory_limit_bytes: int | None = None
    is_trusted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportAnswer:
    """What the child did: an exported file, or the text of its error."""

    staged: StagedExport | None = None
    message: str = "the exporting child gave an empty answer"
    remedy: str = "report it as a bug"
    lacks_trust: bool = False

    def result(self) -> StagedExport:
        """The exported file.

        Raises:
            ExportError: the child's error, with its text; or the answer is empty.
            UntrustedError: the same, for a child that lacked trust.
        """
        if self.staged is not None:
            return self.staged
        raise (UntrustedError if self.lacks_trust else ExportError)(self.message, self.remedy)


_LAST_WORDS = 400
_VALUE_BYTES = 4
"""Networks are made, and run for the reference, in fp32."""
_CACHE_COPIES = 6
"""Of the caches of a decoder: examples, sequence, and the outputs of two layers of calls."""


def peak_memory_estimate_bytes(request: ExportRequest) -> int:
    """Memory that an export may use; determines how many run in parallel."""
    exporter, shape = exporter_of(request.format), request.card.language
    if shape is None:
        return exporter.peak_memory_bytes
    n_weights = parameters_for(shape, request.workload)
    caches = sum(math.prod(one.shape) for one in request.inputs if one.state is not None)
    copies = exporter.weight_copies * n_weights + _CACHE_COPIES * caches
    return exporter.peak_memory_bytes + round(_VALUE_BYTES * copies)


class ExportChild:
    """A child process that exports one file after another; one thread uses it and calls `end`.

    Importing the libraries of a format takes as long as the export of a small network, so only
    the first export pays for it: the second file of a process takes 5 s and not 13 (stories15m,
    ONNX). The files equal those of a fresh process. A fresh process follows an error, and
    everything that could have run or read what the user brought.
    """

    def __init__(self) -> None:
        self._child: SupervisedChild | None = None

    def __enter__(self) -> Self:
        """The child, which ends with the block."""
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def export(self, order: ExportOrder, timeout_s: float) -> StagedExport:
        """Exports in the child and waits for it; the first call starts the child.

        The child and all its child processes are killed after the time.

        Raises:
            ExportError: the export failed, or the child crashed or took too long.
            UntrustedError: the export needs code that the user did not trust.
        """
        order = replace(order, out_dir=order.out_dir.resolve())
        is_ours = _is_ours(order.request)
        if not is_ours:
            self.end()
        can_stay = False
        try:
            staged = self._answer(order, timeout_s).result()
            can_stay = is_ours
        finally:
            if not can_stay:
                self.end()
        return staged

    def end(self) -> None:
        """Ends the process and all that it started."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def _answer(self, order: ExportOrder, timeout_s: float) -> ExportAnswer:
        deadline_ns = time.perf_counter_ns() + int(timeout_s * 1e9)
        if self._child is None:
            # -P: a models/ folder in the workspace does not shadow this package.
            command = (sys.executable, "-P", "-m", "fleetrank.models.export")
            self._child = SupervisedChild(command, environment=_environment())
        child, what = self._child, f"exporting {order.request.card.name} to {order.request.format}"
        child.stdout.clear()
        child.stderr.clear()
        child.send(f"{to_json(order)}\n".encode())
        if child.wait(deadline_ns=deadline_ns, is_complete=_has_line) is End.TIME_LIMIT:
            raise ExportError(
                f"{what} took longer than {timeout_s:g} s and was stopped",
                "increase the export's time limit, or remove this model or runtime",
            )
        if _has_line(child.stdout):
            with contextlib.suppress(CodecError):
                return from_json(ExportAnswer, child.stdout.decode("utf-8", errors="replace"))
        last_words = child.stderr.decode("utf-8", errors="replace").strip()[-_LAST_WORDS:]
        raise _crash(what, child.end(), last_words)


def usable_cores() -> int:
    """Cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0))


def _is_ours(request: ExportRequest) -> bool:
    """Whether the network is defined here or by its library, and no file of the user is read."""
    card = request.card
    if card.source is Source.ENTRY_POINT and not card.entry.startswith(OWN_ENTRY_PREFIX):
        return False
    weights = request.weights
    is_known = weights.checkpoint_path is None and weights.calibration is None
    return card.source is not Source.FILE and is_known


def _has_line(received: bytearray) -> bool:
    return b"\n" in received


def _environment() -> dict[str, str]:
    """The environment of a child, with half the threads for its thread pools."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": str(max(1, usable_cores() // 2)),
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def _crash(what: str, exit_code: int, last_words: str) -> ExportError:
    if exit_code < 0:
        return ExportError(
            f"{what} was ended by {exit_name(exit_code)}: {last_words or 'no output'}",
            "out of memory is the usual cause: close other programs, raise the memory limit, or "
            "export fewer models at once",
        )
    return ExportError(
        f"{what} ended with exit code {exit_code} and no answer: {last_words}",
        "this is a bug in fleetrank or in the exporter's installation: run `fleetrank doctor`",
    )

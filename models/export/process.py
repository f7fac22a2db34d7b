"""Runs one export in a child process, so that a crash does not end the parent; and its messages.

Each message between the two is one line of JSON.
"""

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from fleetrank.foundation.codec import CodecError, from_json, to_json
from fleetrank.foundation.process.supervised_child import ChildEnd, End, exit_name, run_child
from fleetrank.models.cards.card import ExportRequest, StagedExport
from fleetrank.models.errors import ExportError, ModelError, UntrustedError
from fleetrank.models.export.exporters import EXPORTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOrder:
    """What the child does: the arguments of `export_in_child`."""

    request: ExportRequest
    out_dir: Path
    memory_limit_bytes: int | None
    is_trusted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error of the child."""

    is_about_trust: bool
    message: str
    remedy: str

    @classmethod
    def of(cls, error: ModelError) -> "Refusal":
        """The refusal that says what this error says."""
        return cls(
            is_about_trust=isinstance(error, UntrustedError),
            message=error.message,
            remedy=error.remedy,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportAnswer:
    """What the child did; exactly one of the two is not `None`."""

    staged: StagedExport | None = None
    refusal: Refusal | None = None

    def result(self) -> StagedExport:
        """The exported file.

        Raises:
            ExportError: the child's error, with its text; or the answer is empty.
            UntrustedError: the same, for a child that lacked trust.
        """
        if self.staged is not None:
            return self.staged
        if self.refusal is None:
            raise ExportError("the exporting child gave an empty answer", "report it as a bug")
        kind = UntrustedError if self.refusal.is_about_trust else ExportError
        raise kind(self.refusal.message, self.refusal.remedy)


_LAST_WORDS = 400


def peak_memory_estimate_bytes(request: ExportRequest) -> int:
    """Memory that an export may use; determines how many run in parallel."""
    return EXPORTERS[request.format].peak_memory_bytes


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
    order = ExportOrder(
        request=request,
        out_dir=out_dir.resolve(),
        memory_limit_bytes=memory_limit_bytes,
        is_trusted=is_trusted,
    )
    # -P: a models/ folder in the workspace does not shadow this package.
    command = (sys.executable, "-P", "-m", "fleetrank.models.export")
    ended = run_child(command, to_json(order), timeout_s=timeout_s, environment=_environment())
    if ended.end is End.TIME_LIMIT:
        raise ExportError(
            f"exporting {request.card.name} to {request.format} took longer than "
            f"{timeout_s:g} s and was stopped",
            "increase the export's time limit, or remove this model or runtime",
        )
    return _read(ended, request)


def _environment() -> dict[str, str]:
    """The environment of a child, with half the threads for its thread pools."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // 2)),
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def _read(ended: ChildEnd, request: ExportRequest) -> StagedExport:
    if ended.exit_code == 0:
        with contextlib.suppress(CodecError):
            return from_json(ExportAnswer, ended.stdout).result()
    last_words = ended.stderr.strip()[-_LAST_WORDS:]
    what = f"exporting {request.card.name} to {request.format}"
    if ended.exit_code < 0:
        raise ExportError(
            f"{what} was ended by {exit_name(ended.exit_code)}: {last_words or 'no output'}",
            "out of memory is the usual cause: close other programs, raise the memory limit, or "
            "export fewer models at once",
        )
    raise ExportError(
        f"{what} ended with exit code {ended.exit_code} and no answer: {last_words}",
        "this is a bug in fleetrank or in the exporter's installation: run `fleetrank doctor`",
    )

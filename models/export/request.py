"""One export, inside the exporting child."""

import errno
import os
import resource
import shutil
from pathlib import Path

from fleetrank.foundation.errors import is_out_of_memory
from fleetrank.foundation.files import is_no_room, storage_error
from fleetrank.models.cards.card import ExportRequest, Source, StagedExport
from fleetrank.models.errors import ExportError, ModelError
from fleetrank.models.export.network_export import export_network
from fleetrank.models.export.user_file import stage_file

_NO_ROOM_BYTES = 1024 * 1024
"""Smaller than any exported network; if a writer fails with less free space, the disk is full."""


def export_request(request: ExportRequest, out_dir: Path, *, is_trusted: bool) -> StagedExport:
    """Writes the requested file to `out_dir`.

    Raises:
        ExportError: the export failed; a full disk or memory is named as the reason.
        UntrustedError: the export needs model-supplied code that the user did not trust.
    """
    _limit_threads()
    try:
        if request.card.source is Source.FILE:
            return stage_file(request, out_dir, is_trusted=is_trusted)
        return export_network(request, out_dir, is_trusted=is_trusted)
    except ModelError:
        raise
    except Exception as error:  # the boundary: every error is converted to one that can be stored
        if is_out_of_memory(error):
            raise ExportError(
                f"exporting {request.card.name} to {request.format} ran out of memory",
                "close other programs, raise the memory limit, or export fewer models at once",
            ) from error
        if (cause := _lack_of_room(error, out_dir)) is not None:
            found = storage_error(out_dir, cause)
            raise ExportError(found.message, found.remedy) from error
        raise ExportError(
            f"exporting {request.card.name} failed: {type(error).__name__}: {error}",
            "fix the model or remove it from the sweep",
        ) from error


def _lack_of_room(error: Exception, folder: Path) -> OSError | None:
    """The system error behind a library error; `None` if the disk was not full.

    PyTorch's writer and other C++ writers raise a RuntimeError without the reason.
    """
    if isinstance(error, OSError):
        return error if is_no_room(error) else None
    is_full = "no space left on device" in str(error).lower()
    if not isinstance(error, RuntimeError) and not is_full:
        return None
    if is_full or shutil.disk_usage(folder).free < _NO_ROOM_BYTES:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if _has_met_size_limit(folder):
        return OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return None


def _has_met_size_limit(folder: Path) -> bool:
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit_bytes == resource.RLIM_INFINITY:
        return False
    sizes = (path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return any(size >= limit_bytes for size in sizes)


def _limit_threads() -> None:
    """Uses half of the cores, so that two exports can run in parallel."""
    try:
        import torch
    except ImportError as error:
        raise ExportError("torch is not installed", "pip install 'fleetrank[torch]'") from error
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))

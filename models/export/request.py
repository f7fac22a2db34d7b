"""One export, inside the process that is there for it."""

import errno
import os
from pathlib import Path

from models.errors import ExportError
from models.export.network_export import export_network
from models.export.user_file import stage_file
from models.types import ExportRequest, Source, StagedExport

OUT_OF_MEMORY = ("can't allocate memory", "bad_alloc", "Cannot allocate memory")
"""How PyTorch's allocator, C++ and the system say it in the text of other exceptions."""


def export_request(request: ExportRequest, out_dir: Path, *, is_trusted: bool) -> StagedExport:
    """Makes the file that is asked for in `out_dir`.

    Raises:
        ExportError: it cannot be made; full disk and memory are named as such.
        UntrustedError: it needs code of somebody's that the user did not trust.
    """
    _limit_threads()
    try:
        if request.card.source is Source.FILE:
            return stage_file(request, out_dir, is_trusted=is_trusted)
        return export_network(request, out_dir, is_trusted=is_trusted)
    except MemoryError as error:
        raise memory_error(request) from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise disk_full_error(out_dir) from error
        raise ExportError(f"exporting {request.card.name}: {error}", "see the reason") from error
    except RuntimeError as error:
        if any(sign in str(error) for sign in OUT_OF_MEMORY):
            raise memory_error(request) from error
        raise ExportError(
            f"{request.card.name} does not run: {error}", "mend the network, or leave it out"
        ) from error


def memory_error(request: ExportRequest) -> ExportError:
    """The limit or the machine's memory was too small."""
    return ExportError(
        f"exporting {request.card.name} to {request.format} ran out of memory",
        "close other programs, raise the memory limit, or export fewer models at once",
    )


def disk_full_error(folder: Path) -> ExportError:
    """The disk is full."""
    return ExportError(
        f"the disk of {folder} is full",
        "free some space, or bound the artifact cache with `fleetrank models prune`",
    )


def _limit_threads() -> None:
    """Half of the cores, so that two exports run side by side."""
    try:
        import torch
    except ImportError as error:
        raise ExportError("torch is not installed", "pip install 'fleetrank[torch]'") from error
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))

"""One export, inside the exporting child: build, count MACs, run the original, export."""

import errno
import logging
import math
import os
import resource
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fleetrank.foundation.errors import is_out_of_memory
from fleetrank.foundation.files import is_no_room, storage_error
from fleetrank.models.cards.card import Cost, ExportRequest, Source, StagedExport
from fleetrank.models.errors import ExportError, ModelError
from fleetrank.models.export.exporters import EXPORTERS, Exporter, library_versions
from fleetrank.models.export.user_file import stage_file
from fleetrank.models.networks.cost import count_cost, stated_cost
from fleetrank.models.networks.weights import CASES, network_with_weights, seeded_images

if TYPE_CHECKING:
    import torch

_LOG = logging.getLogger(__name__)
_DTYPES = {"fp32": None, "fp16": "float16", "bf16": "bfloat16"}
_SOURCE_LIBRARY = {Source.TORCHVISION: ("torchvision",), Source.TIMM: ("timm",)}
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


def export_network(request: ExportRequest, out_dir: Path, *, is_trusted: bool) -> StagedExport:
    """Exports a PyTorch network, with inputs and reference outputs for verification.

    Raises:
        ExportError: a library is missing, or the network cannot be built, run or exported.
        UntrustedError: the network is an entry point without trust.
    """
    _check_precision(request)
    card = request.card
    exporter = EXPORTERS[request.format]
    libraries = exporter.libraries + _SOURCE_LIBRARY.get(card.source, ())
    versions = library_versions(libraries, exporter.extra)
    network = network_with_weights(card, request.weights, is_trusted=is_trusted)
    cases = request.batch * math.ceil(CASES / request.batch)
    images = seeded_images(cases, card.input_size or 224)
    cost = _counted_cost(network, images[:1])
    inputs_path, reference_path = _write_reference(network, images, request.batch, out_dir)
    path = out_dir / f"model.{request.format}"
    # A copy, because torch.export would store the whole tensor behind a slice.
    image = images[: request.batch].clone()
    dtype = _DTYPES[request.precision]
    if dtype is not None:
        network, image = network.to(_torch_dtype(dtype)), image.to(_torch_dtype(dtype))
    _export(exporter, network, image, path, request)
    return StagedExport(
        path=path,
        format=request.format,
        cost=stated_cost(card, cost),
        versions=versions,
        inputs_path=inputs_path,
        reference_path=reference_path,
    )


def _check_precision(request: ExportRequest) -> None:
    known = EXPORTERS[request.format].precisions
    if request.precision not in known:
        raise ExportError(
            f"{request.format} cannot be exported in precision {request.precision!r}",
            f"use {' or '.join(known)}",
        )


def _torch_dtype(name: str) -> "torch.dtype":
    import torch

    dtype: torch.dtype = getattr(torch, name)
    return dtype


def _counted_cost(network: "torch.nn.Module", image: "torch.Tensor") -> Cost:
    try:
        return count_cost(network, image)
    except Exception:  # a user's network may break the counter and still run
        _LOG.exception("MACs could not be counted")
        parameters = sum(parameter.numel() for parameter in network.parameters())
        return Cost(macs=None, parameters=parameters, method=None)


def _write_reference(
    network: "torch.nn.Module", images: "torch.Tensor", batch: int, out_dir: Path
) -> tuple[Path, Path]:
    import torch
    from torch.utils import _pytree

    with torch.inference_mode():
        # Runs with the same batch size, since a network may behave differently for another size.
        slices = [
            [leaf.numpy() for leaf in _pytree.tree_leaves(network(part)) if _is_tensor(leaf)]
            for part in images.split(batch)
        ]
    outputs = [np.concatenate(arrays) for arrays in zip(*slices, strict=True)]
    if not outputs:
        raise ExportError("the network returns no tensor", "return a tensor or a tuple of tensors")
    if not all(np.isfinite(output).all() for output in outputs):
        raise ExportError(
            "the network's output is not finite", "check its weights and normalisation"
        )
    inputs_path, reference_path = out_dir / "inputs.npz", out_dir / "reference.npz"
    np.savez(inputs_path, input_0=images.numpy())
    named = {f"output_{number}": output for number, output in enumerate(outputs)}
    # NumPy's stub takes every keyword for its flag `allow_pickle`.
    np.savez(reference_path, **named)  # type: ignore[arg-type]
    return inputs_path, reference_path


def _is_tensor(leaf: object) -> bool:
    import torch

    return isinstance(leaf, torch.Tensor)


def _export(
    exporter: Exporter,
    network: "torch.nn.Module",
    images: "torch.Tensor",
    path: Path,
    request: ExportRequest,
) -> None:
    try:
        exporter.export(network, images, path)
    except Exception as error:
        if is_out_of_memory(error) or isinstance(error, OSError):
            raise  # a problem of the machine, not of the network
        raise ExportError(
            f"{request.card.name} cannot be exported to {request.format}: {_reason(error)}",
            "remove this model or this runtime from the sweep, or replace the operator",
        ) from error


def _reason(error: BaseException) -> str:
    """The most informative line: the deepest cause, without the library's advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"

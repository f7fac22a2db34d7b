"""One export, inside the exporting child: build, count MACs, run the original, export."""

import errno
import logging
import os
import resource
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.foundation.errors import FleetError, is_out_of_memory
from fleetrank.foundation.files import is_no_room, storage_error
from fleetrank.foundation.workload import Optimizer, WorkloadKind
from fleetrank.models.cards.card import Cost, ExportRequest, Source, StagedExport
from fleetrank.models.cards.input_size import INPUT_SIZE, takes_images
from fleetrank.models.cards.language import language_outputs
from fleetrank.models.cards.language_card import why_not_trained, why_not_workload
from fleetrank.models.errors import ExportError, ModelError
from fleetrank.models.export.exporters import (
    Exporter,
    exporter_of,
    library_versions,
    why_not_precision,
    write_check,
)
from fleetrank.models.export.process import usable_cores
from fleetrank.models.export.program import Program, with_names
from fleetrank.models.export.quantize import export_quantised
from fleetrank.models.export.reference import write_reference, write_sequence
from fleetrank.models.export.user_file import stage_file
from fleetrank.models.file_inputs import check_sizes
from fleetrank.models.networks.build import check_trust
from fleetrank.models.networks.cost import count_cost, stated_cost
from fleetrank.models.networks.examples import Arguments, Examples
from fleetrank.models.networks.weights import network_with_weights
from fleetrank.models.onnx_external_weights import weights_beside

if TYPE_CHECKING:
    import torch

_LOG = logging.getLogger(__name__)
_DTYPES = {"fp16": "float16", "bf16": "bfloat16"}
"""Of a network before it is written; integers are made from fp32."""
_NO_ROOM_BYTES = 1024 * 1024
"""Smaller than any exported network; if a writer fails with less free space, the disk is full."""


def check_ready(request: ExportRequest, *, is_trusted: bool) -> None:
    """Checks what can be known before an export: trust, sizes of a file, libraries of this host.

    Raises:
        UntrustedError: as `export_request`.
        ExportError: a user's file leaves a size open.
        LibraryError: a library is not installed.
    """
    check_trust(request.card, is_trusted=is_trusted)
    check_sizes(request.card)
    library_versions(request)


def export_request(request: ExportRequest, out_dir: Path, *, is_trusted: bool) -> StagedExport:
    """Writes the requested file to `out_dir`.

    Raises:
        ExportError: the export failed; a full disk or memory is named as the reason.
        UntrustedError: the export needs model-supplied code that the user did not trust.
    """
    try:
        if request.card.source is Source.FILE:
            return stage_file(request, out_dir, is_trusted=is_trusted)
        _limit_threads()
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
    torch.set_num_threads(max(1, usable_cores() // 2))


def export_network(request: ExportRequest, out_dir: Path, *, is_trusted: bool) -> StagedExport:
    """Exports a PyTorch network, with inputs and reference outputs for verification.

    Raises:
        ExportError: a library is missing, or the network cannot be built, run or exported.
        UntrustedError: the network is an entry point without trust.
    """
    card = request.card
    # What no exporter writes, or the network does not answer; a plan skips such cells.
    if (reason := why_not_precision(request)) is not None:
        raise ExportError(reason, "give another precision, or another runtime")
    if (reason := why_not_workload(card, request.workload)) is not None:
        raise ExportError(reason, "give another workload, such as prefill@128 or decode@128")
    if (reason := why_not_trained(request)) is not None:
        raise ExportError(reason, "give another workload, such as image, or another runtime")
    exporter = exporter_of(request.format)
    versions = library_versions(request)
    network, examples = network_with_weights(
        card,
        request.weights,
        is_trusted=is_trusted,
        inputs=request.inputs,
        batch=request.batch,
        workload=request.workload,
    )
    _check_size(request, examples)
    if request.workload.kind is WorkloadKind.SCORE:
        network.scores_every_token = True
    original, optimizer = network, request.workload.optimizer
    if optimizer is not None:
        original, network, examples = _step(network, request, optimizer)
    if card.language is None or optimizer is not None:
        inputs_path, reference_path = write_reference(original, examples, out_dir)
    else:
        inputs_path, reference_path = write_sequence(
            network, request.inputs, request.workload, out_dir
        )
    # After the reference: a step of training changes its network.
    cost = _counted_cost(original, examples, request)
    path = out_dir / f"model.{request.format}"
    _export(exporter, _program(network, examples, request), path, request, examples)
    # Kernels of integers differ between processors. A sequence would load two more graphs there.
    is_checked = request.recipe is not None and request.workload.steps is None
    return StagedExport(
        path=path,
        format=request.format,
        cost=stated_cost(card, cost, request.workload),
        versions=versions,
        inputs_path=inputs_path,
        reference_path=reference_path,
        weights_path=weights_beside(path),
        check_path=write_check(inputs_path, reference_path) if is_checked else None,
    )


def _step(
    network: "torch.nn.Module", request: ExportRequest, optimizer: Optimizer
) -> "tuple[torch.nn.Module, torch.nn.Module, Examples]":
    """A step of training by PyTorch's own loop, the graph of the same step, and batches for it."""
    from fleetrank.models.networks import training

    shape = request.card.language
    loss: torch.nn.Module
    if shape is None:
        size = request.card.input_size or 224
        examples = training.image_batches(network, size, request.batch)
        loss = training.ImageLoss(training.prepare(network))
    else:
        examples = training.text_batches(request.inputs[0])
        loss = training.TextLoss(training.prepare(network), shape)
    graph = training.StepGraph(loss, optimizer, examples.traced)
    return training.StepByHand(loss, optimizer), graph, examples


def _check_size(request: ExportRequest, examples: Examples) -> None:
    """Rejects a size of images that the entry point did not use for its example inputs."""
    if INPUT_SIZE in dict(request.axes) and takes_images(request.card) and examples.has_whole_cases:
        raise ExportError(
            f"entry point {request.card.entry} returns its inputs, so axis {INPUT_SIZE!r} cannot "
            "change their size",
            "return only the network, which then gets images of that size",
        )


def _program(network: "torch.nn.Module", examples: Examples, request: ExportRequest) -> Program:
    """The network in the precision of the request, and the names of a language model's tensors."""
    arguments, shape = examples.traced, request.card.language
    if (name := _DTYPES.get(request.precision)) is not None:
        import torch

        dtype: torch.dtype = getattr(torch, name)
        network = network.to(dtype)
        # Whole numbers stay as they are.
        arguments = tuple(one.to(dtype) if one.is_floating_point() else one for one in arguments)
    if shape is None or request.workload.optimizer is not None:
        return Program(network=network, arguments=arguments)
    inputs = tuple(one.name for one in request.inputs)
    outputs = language_outputs(shape, request.inputs)
    is_sequence = request.workload.kind is WorkloadKind.GENERATE
    return Program(
        network=with_names(network, inputs, outputs),
        arguments=arguments,
        step=_one_token(arguments) if is_sequence else None,
        input_names=inputs,
        output_names=outputs,
    )


def _one_token(arguments: Arguments) -> Arguments:
    """The same call of a decoder with its first token only; copies, as views keep their base."""
    tokens, positions, *caches = arguments
    return (tokens[:, :1].clone(), positions[:1].clone(), *caches)


def _counted_cost(network: "torch.nn.Module", examples: Examples, request: ExportRequest) -> Cost:
    """Of one sample: an image, a prompt, or a step of `generate`."""
    call = examples.counted
    if request.workload.kind is WorkloadKind.GENERATE:
        call = _one_token(call)
    try:
        return count_cost(network, call, examples.counted_batch)
    except Exception:  # a user's network may break the counter and still run
        _LOG.exception("MACs could not be counted")
        parameters = sum(parameter.numel() for parameter in network.parameters())
        return Cost(macs=None, parameters=parameters, method=None)


def _export(
    exporter: Exporter, program: Program, path: Path, request: ExportRequest, examples: Examples
) -> None:
    try:
        if request.recipe is None:
            exporter.export(program, path)
        else:
            export_quantised(program, path, request, examples)
    except ModelError:
        raise
    except FleetError as error:
        raise ExportError(error.message, error.remedy) from error
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

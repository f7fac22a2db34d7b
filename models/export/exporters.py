"""Formats of exported files: how a network is written in each, and how a user's file is checked.

Adding a format is one entry of `EXPORTERS`. Libraries are imported when they are used.
"""

import re
import shutil
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.formats import described
from fleetrank.foundation.units import BYTES_PER_MIB
from fleetrank.foundation.vocabulary import FlopsMethod, Format, Precision
from fleetrank.foundation.workload import step_of
from fleetrank.models import onnx_external_weights
from fleetrank.models.cards.card import (
    GROUP,
    LANGUAGE_RECIPES,
    RECIPES,
    Cost,
    ExportRequest,
    Source,
    own_format,
)
from fleetrank.models.errors import ExportError, LibraryError
from fleetrank.models.export.program import Program
from fleetrank.models.export.rewrite_search import direct_search
from fleetrank.models.quantization_scales import check_tflite_scales
from fleetrank.models.state_outputs import check_tflite_states
from fleetrank.models.tflite_types import check_buffers

if TYPE_CHECKING:
    import torch

_TFLITE_IDENTIFIER = b"TFL3"
ONLY_SIGNATURE, ONLY_METHOD = "serving_default", "forward"
"""Of a file with one graph; the names that LiteRT and ExecuTorch give it."""
_PTE_IDENTIFIER = re.compile(rb"ET\d\d")
_SOURCE_LIBRARY = {Source.TORCHVISION: ("torchvision",), Source.TIMM: ("timm",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """Writes one self-contained file of one format; ONNX can need a second one for its weights.

    Attributes:
        libraries: distributions that the export uses; their versions are stored with the file.
        extra: the extra to install if a distribution is missing: `fleetrank[EXTRA]`.
        peak_memory_bytes: highest resident size measured over the 13 built-in networks of images,
            rounded up; determines how many exports run in parallel.
        weight_copies: of a language model's weights that are held at once beside that, at most;
            seen between decoders of 15 and 135 million parameters, rounded up.
        export: writes a network for inputs of exactly the shapes of its calls. Raises the
            library's exceptions; the caller converts them to an `ExportError`.
        copy: checks a user's file without running it, and writes it as one file. Returns the
            counted cost, or `None`. Raises `ExportError`.
        copy_libraries, copy_extra: distributions that `copy` uses, and their extra.
        precisions: of weights, inputs and arithmetic, which share one type. Beside these, the
            integers of `RECIPES`.
        recipe_libraries: distributions that the recipes use.
    """

    libraries: tuple[str, ...]
    extra: str
    peak_memory_bytes: int
    export: Callable[[Program, Path], None]
    copy: Callable[[Path, Path, ExportRequest], Cost | None]
    copy_libraries: tuple[str, ...] = ()
    copy_extra: str = ""
    precisions: tuple[str, ...] = ("fp32",)
    recipe_libraries: tuple[str, ...] = ()
    weight_copies: float = 5.0


def why_not_precision(request: ExportRequest) -> str | None:
    """The reason why a network cannot be written in this precision; `None` for a user's file."""
    known = exporter_of(request.format).precisions
    if request.card.source is Source.FILE or request.precision in known:
        return None
    if request.recipe is not None:
        return _why_not_groups(request)
    recipes = RECIPES if request.card.language is None else LANGUAGE_RECIPES
    known += tuple(word for format_, word in recipes if format_ is request.format)
    if request.format is Format.PT2 and request.precision == Precision.INT8:
        return "pt2 cannot be exported in precision 'int8': eager PyTorch would compute it in fp32"
    *others, last = known
    return (
        f"{request.format} cannot be exported in precision {request.precision!r}, only in "
        f"{', '.join(others)}{' or ' if others else ''}{last}"
    )


def _why_not_groups(request: ExportRequest) -> str | None:
    shape, is_grouped = request.card.language, request.precision == Precision.INT4
    if shape is None or not is_grouped or request.format is not Format.PTE:
        return None
    uneven = sorted(width for width in shape.widths_read if width % GROUP)
    if not uneven:
        return None
    return (
        f"{request.card.name} cannot be exported to pte in precision 'int4': weights are in "
        f"groups of {GROUP}, which do not divide a width of {' or '.join(map(str, uneven))}"
    )


def library_versions(request: ExportRequest) -> tuple[tuple[str, str], ...]:
    """(name, version) of the distributions that an export uses, sorted by name.

    Raises:
        LibraryError: a distribution is not installed; the remedy names the extra.
    """
    exporter, card = exporter_of(request.format), request.card
    libraries, extra = exporter.libraries + _SOURCE_LIBRARY.get(card.source, ()), exporter.extra
    if request.recipe is not None:
        libraries += exporter.recipe_libraries
    if card.source is Source.FILE:
        libraries, extra = ("tensorflow-cpu",), "tensorflow"
        if own_format(card) is not None:
            libraries, extra = exporter.copy_libraries, exporter.copy_extra
    try:
        return tuple(sorted((name, metadata.version(name)) for name in libraries))
    except metadata.PackageNotFoundError as error:
        raise LibraryError(
            f"{error.name} is not installed", f"pip install 'fleetrank[{extra}]'"
        ) from error


def _export_onnx(program: Program, path: Path) -> None:
    """Uses the dynamo exporter; weights that are too large for the file are beside it."""
    import torch

    network, arguments = program.network, program.arguments
    with direct_search():
        torch.onnx.export(
            network if program.step is None else program.trace(),
            arguments if program.step is None else (),
            str(path),
            input_names=program.input_names or None,
            output_names=program.output_names or None,
            dynamo=True,
            external_data=program.weight_bytes > onnx_external_weights.LARGEST_BYTES,
            verbose=False,
        )
    onnx_external_weights.name_weights(path)


def _copy_onnx(source: Path, path: Path, request: ExportRequest) -> Cost:
    from fleetrank.models.files import stage_onnx

    step_inputs = replace(request, workload=step_of(request.workload)).inputs
    return stage_onnx(
        source, path, request.card.input_size, request.inputs, request.batch, step_inputs
    )


def _export_pt2(program: Program, path: Path) -> None:
    """An archive of `torch.export` runs without the model's source code."""
    import torch

    torch.export.save(program.trace(), str(path))


def _copy_pt2(source: Path, path: Path, _request: ExportRequest) -> None:
    remedy = "save it again with torch.export.save"
    explained = failing_as(ExportError, f"{source} is not a .pt2 archive", remedy)
    with explained, zipfile.ZipFile(source) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise ExportError(
            f"{source} is damaged: {damaged} does not match its checksum",
            "copy it again, or save it again with torch.export.save",
        )
    shutil.copyfile(source, path)


def _export_tflite(program: Program, path: Path) -> None:
    """Input and output keep PyTorch's layout (channels first); `generate` has two signatures.

    LiteRT turns whole numbers of 64 bits into 32 bits.
    """
    import litert_torch

    if not program.input_names:
        litert_torch.convert(program.network, program.arguments).export(str(path))
        return
    converter = litert_torch.Converter()
    for name, arguments in (program.calls or {ONLY_SIGNATURE: program.arguments}).items():
        converter.add_signature(name, program.network, (), program.named(arguments))
    converter.convert().export(str(path))


def _copy_tflite(source: Path, path: Path, request: ExportRequest) -> None:
    """Static checks of a FlatBuffer; the worker's runtime detects the remaining errors."""
    data = source.read_bytes()
    if len(data) < 8 or data[4:8] != _TFLITE_IDENTIFIER:
        raise ExportError(f"{source} is not a TFLite model", "export it again, or correct the path")
    try:
        check_buffers(data)
        check_tflite_scales(data, source)
        check_tflite_states(data, source, request.inputs)
    except (struct.error, ValueError, IndexError) as error:
        raise ExportError(
            f"{source} is damaged: the file is truncated", "copy or export it again"
        ) from error
    shutil.copyfile(source, path)


def _export_pte(program: Program, path: Path) -> None:
    """Lowered to XNNPACK; other operators use ExecuTorch's own kernels.

    `generate` has two methods. A tied head is stored twice: XNNPACK packs it for its product.
    """
    import torch

    graphs = {
        name: torch.export.export(program.network, arguments)
        for name, arguments in (program.calls or {ONLY_METHOD: program.arguments}).items()
    }
    write_pte(graphs, path)


def write_pte(graphs: "dict[str, torch.export.ExportedProgram]", path: Path) -> None:
    """Lowers the graph of each method to XNNPACK."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    lowered = to_edge_transform_and_lower(graphs, partitioner=[XnnpackPartitioner()])
    with path.open("wb") as file:
        lowered.to_executorch().write_to_file(file)


def _copy_pte(source: Path, path: Path, _request: ExportRequest) -> None:
    """Checks only the identifier; the runtime verifies the whole program when it loads it."""
    with source.open("rb") as file:
        head = file.read(8)
    if not _PTE_IDENTIFIER.fullmatch(head[4:8]):
        raise ExportError(
            f"{source} is not an ExecuTorch program", "export it again, or correct the path"
        )
    shutil.copyfile(source, path)


EXPORTERS: Mapping[Format, Exporter] = {
    Format.ONNX: Exporter(
        libraries=("onnx", "onnxscript", "torch"),
        extra="onnx,torch",
        peak_memory_bytes=1100 * BYTES_PER_MIB,
        export=_export_onnx,
        copy=_copy_onnx,
        copy_libraries=("onnx",),
        copy_extra="onnx",
        recipe_libraries=("onnxruntime",),
        precisions=("fp32", "fp16"),  # ONNX Runtime lacks bfloat16 convolutions
        weight_copies=4.0,
    ),
    Format.PT2: Exporter(
        libraries=("torch",),
        extra="torch",
        peak_memory_bytes=800 * BYTES_PER_MIB,
        export=_export_pt2,
        copy=_copy_pt2,
        precisions=("fp32", "fp16", "bf16"),
        weight_copies=2.0,
    ),
    Format.TFLITE: Exporter(
        libraries=("litert-converter", "litert-torch", "torch"),
        extra="tflite",
        peak_memory_bytes=1500 * BYTES_PER_MIB,
        export=_export_tflite,
        copy=_copy_tflite,
        recipe_libraries=("ai-edge-litert", "ai-edge-quantizer"),
    ),
    Format.PTE: Exporter(
        libraries=("executorch", "torch"),
        extra="executorch",
        peak_memory_bytes=900 * BYTES_PER_MIB,
        export=_export_pte,
        copy=_copy_pte,
        recipe_libraries=("torchao",),
    ),
}


def exporter_of(format_: Format) -> Exporter:
    """How a format is written; a format of another package is copied only."""
    return EXPORTERS.get(format_, _OUTSIDE)


def _copy_outside(source: Path, path: Path, request: ExportRequest) -> Cost | None:
    with failing_as(
        ExportError,
        f"{source} is not a .{request.format} file",
        "export it again, or correct the path",
        ValueError,
    ):
        facts = described(request.format, str(source))
    shutil.copyfile(source, path)
    return Cost(macs=facts.macs, parameters=facts.parameters, method=FlopsMethod.FORMULA)


def _never_exported(_program: Program, path: Path) -> None:
    raise ExportError(
        f"no network is exported to {path.suffix}",
        "give a file in this format, or name another runtime for the network",
    )


_OUTSIDE = Exporter(
    libraries=(),
    extra="",
    peak_memory_bytes=300 * BYTES_PER_MIB,
    export=_never_exported,
    copy=_copy_outside,
)


def write_check(inputs_path: Path, reference_path: Path) -> Path:
    """Both files in one, which goes to each device that runs the exported file."""
    path = inputs_path.with_name("check.npz")
    with np.load(inputs_path) as inputs, np.load(reference_path) as outputs:
        np.savez(path, **inputs, **outputs)
    return path

"""Formats of exported files: how a network is written in each, and how a user's file is checked.

Adding a format is one entry of `EXPORTERS`. Libraries are imported when they are used.
"""

import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.foundation.vocabulary import Format
from fleetrank.models.cards.card import Cost
from fleetrank.models.errors import ExportError
from fleetrank.models.files.tflite_file import check_buffers

if TYPE_CHECKING:
    import torch

_MIB = 1 << 20
_TFLITE_IDENTIFIER = b"TFL3"
_PTE_IDENTIFIER = re.compile(rb"ET\d\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """Writes one self-contained file of one format.

    Attributes:
        libraries: distributions that the export uses; their versions are stored with the file.
        extra: the extra to install if a distribution is missing: `fleetrank[EXTRA]`.
        peak_memory_bytes: highest resident size measured over the 13 built-in models, rounded up;
            determines how many exports run in parallel.
        export: writes a network for inputs of exactly the shape of the image, (batch, 3, height,
            width). Raises the library's exceptions; the caller converts them to an `ExportError`.
        copy: checks a user's file without running it, and writes it as one file. The number is the
            card's `input_size`. Returns the counted cost, or `None`. Raises `ExportError`.
        copy_libraries, copy_extra: distributions that `copy` uses, and their extra.
        precisions: of weights, inputs and arithmetic, which share one type.
    """

    libraries: tuple[str, ...]
    extra: str
    peak_memory_bytes: int
    export: Callable[["torch.nn.Module", "torch.Tensor", Path], None]
    copy: Callable[[Path, Path, int | None], Cost | None]
    copy_libraries: tuple[str, ...] = ()
    copy_extra: str = ""
    precisions: tuple[str, ...] = ("fp32",)


def library_versions(libraries: tuple[str, ...], extra: str) -> tuple[tuple[str, str], ...]:
    """(name, version) of installed distributions, sorted by name.

    Raises:
        ExportError: a distribution is not installed; the remedy names the extra.
    """
    try:
        return tuple(sorted((name, metadata.version(name)) for name in libraries))
    except metadata.PackageNotFoundError as error:
        raise ExportError(
            f"{error.name} is not installed", f"pip install 'fleetrank[{extra}]'"
        ) from error


def _export_onnx(network: "torch.nn.Module", image: "torch.Tensor", path: Path) -> None:
    """Uses the dynamo exporter; the weights are stored inside the file."""
    import torch

    torch.onnx.export(network, (image,), str(path), dynamo=True, external_data=False, verbose=False)


def _copy_onnx(source: Path, path: Path, input_size: int | None) -> Cost:
    from fleetrank.models.files.onnx_file import stage_onnx

    return stage_onnx(source, path, input_size)


def _export_pt2(network: "torch.nn.Module", image: "torch.Tensor", path: Path) -> None:
    """An archive of `torch.export` runs without the model's source code."""
    import torch

    torch.export.save(torch.export.export(network, (image,)), str(path))


def _copy_pt2(source: Path, path: Path, _input_size: int | None) -> None:
    try:
        with zipfile.ZipFile(source) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, OSError) as error:
        raise ExportError(
            f"{source} is not a .pt2 archive: {error}", "save it again with torch.export.save"
        ) from error
    if damaged is not None:
        raise ExportError(
            f"{source} is damaged: {damaged} does not match its checksum",
            "copy it again, or save it again with torch.export.save",
        )
    shutil.copyfile(source, path)


def _export_tflite(network: "torch.nn.Module", image: "torch.Tensor", path: Path) -> None:
    """Input and output keep PyTorch's layout (channels first)."""
    import litert_torch

    litert_torch.convert(network, (image,)).export(str(path))


def _copy_tflite(source: Path, path: Path, _input_size: int | None) -> None:
    """Static checks of a FlatBuffer; the worker's runtime detects the remaining errors."""
    data = source.read_bytes()
    if len(data) < 8 or data[4:8] != _TFLITE_IDENTIFIER:
        raise ExportError(f"{source} is not a TFLite model", "export it again, or correct the path")
    try:
        check_buffers(data)
    except (struct.error, ValueError) as error:
        raise ExportError(
            f"{source} is damaged: the file is truncated", "copy or export it again"
        ) from error
    shutil.copyfile(source, path)


def _export_pte(network: "torch.nn.Module", image: "torch.Tensor", path: Path) -> None:
    """Lowered to XNNPACK; other operators use ExecuTorch's own kernels."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    lowered = to_edge_transform_and_lower(
        torch.export.export(network, (image,)), partitioner=[XnnpackPartitioner()]
    )
    with path.open("wb") as file:
        lowered.to_executorch().write_to_file(file)


def _copy_pte(source: Path, path: Path, _input_size: int | None) -> None:
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
        peak_memory_bytes=1100 * _MIB,
        export=_export_onnx,
        copy=_copy_onnx,
        copy_libraries=("onnx",),
        copy_extra="onnx",
        precisions=("fp32", "fp16"),  # ONNX Runtime lacks bfloat16 convolutions
    ),
    Format.PT2: Exporter(
        libraries=("torch",),
        extra="torch",
        peak_memory_bytes=800 * _MIB,
        export=_export_pt2,
        copy=_copy_pt2,
        precisions=("fp32", "fp16", "bf16"),
    ),
    Format.TFLITE: Exporter(
        libraries=("litert-converter", "litert-torch", "torch"),
        extra="tflite",
        peak_memory_bytes=1500 * _MIB,
        export=_export_tflite,
        copy=_copy_tflite,
    ),
    Format.PTE: Exporter(
        libraries=("executorch", "torch"),
        extra="executorch",
        peak_memory_bytes=900 * _MIB,
        export=_export_pte,
        copy=_copy_pte,
    ),
}

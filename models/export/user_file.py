"""Takes over a file that the user exported: checked, made self-contained, never run."""

import logging
import math
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from models.cards import external_data_names
from models.cost import stated_cost
from models.errors import ExportError, UntrustedError
from models.export.exporter import library_versions
from models.export.tensorflow_file import convert_to_tflite
from models.export.tflite_file import check_buffers
from models.onnx_cost import count_onnx_macs
from models.types import Cost, ExportRequest, FlopsMethod, ModelCard, StagedExport

if TYPE_CHECKING:
    import onnx
    from google.protobuf.message import Message

_LOG = logging.getLogger(__name__)
_TFLITE_IDENTIFIER = b"TFL3"
_PTE_IDENTIFIER = re.compile(rb"ET\d\d")


def stage_file(request: ExportRequest, out_dir: Path, *, is_trusted: bool) -> StagedExport:
    """Copies or converts the file of a card into `out_dir`.

    Raises:
        ExportError: missing, damaged, of another format, or reaching outside its folder.
        UntrustedError: a Keras model or SavedModel, whose conversion may run code.
    """
    card = request.card
    source = Path(card.entry)
    if not source.exists():
        raise ExportError(f"{source} does not exist", f"correct 'entry' in the card of {card.name}")
    path = out_dir / f"model.{request.format}"
    cost: Cost | None = None
    versions: tuple[tuple[str, str], ...] = ()
    if source.suffix.lower() == ".onnx":
        versions = library_versions(("onnx",), "onnx")
        cost = _stage_onnx(source, path)
    elif source.suffix.lower() == ".tflite":
        _check_tflite(source.read_bytes(), source)
        shutil.copyfile(source, path)
    elif source.suffix.lower() == ".pte":
        _check_pte(source)
        shutil.copyfile(source, path)
    elif source.suffix.lower() == ".pt2":
        _check_pt2(source)
        shutil.copyfile(source, path)
    else:
        versions = _stage_tensorflow(card, source, path, is_trusted=is_trusted)
    return StagedExport(
        path=path, format=request.format, cost=stated_cost(card, cost), versions=versions
    )


def _stage_onnx(source: Path, path: Path) -> Cost:
    import onnx

    try:
        model = onnx.load(str(source), load_external_data=False)
    except Exception as error:  # protobuf's DecodeError is not importable without its private API
        raise ExportError(
            f"{source} is not an ONNX model: {error}", "export it again, or correct the path"
        ) from error
    if not model.graph.node:
        raise ExportError(f"{source} holds no ONNX graph", "export it again, or correct the path")
    _check_external_data(model, source)
    macs = _counted_macs(model)
    try:
        # Reads the external data, so that the copy holds all in one file.
        model = onnx.load(str(source))
    except Exception as error:
        raise ExportError(
            f"{source} is damaged: {_first_line(error)}", "export it again with its external data"
        ) from error
    try:
        onnx.checker.check_model(model)
    except Exception as error:
        raise ExportError(
            f"onnx.checker refuses {source}: {_first_line(error)}",
            "correct what it names, or export the model again",
        ) from error
    onnx.save(model, str(path))
    weights = (tensor for tensor in model.graph.initializer if tensor.data_type in _float_types())
    parameters = sum(math.prod(tensor.dims) for tensor in weights)
    method = None if macs is None else FlopsMethod.COUNTED
    return Cost(macs=macs, parameters=parameters, method=method)


def _counted_macs(model: "onnx.ModelProto") -> int | None:
    try:
        return count_onnx_macs(model)
    except Exception:  # a graph that the checker is about to refuse, or one beyond protobuf's 2 GiB
        _LOG.exception("MACs could not be counted")
        return None


def _check_external_data(model: "onnx.ModelProto", source: Path) -> None:
    """Names what is wrong with weights outside the file."""
    folder = source.resolve().parent
    for location in sorted(set(_external_locations(model))):
        # resolve() also follows links that lead out of the folder.
        target = (folder / location).resolve()
        if not target.is_relative_to(folder):
            raise ExportError(
                f"{source}: external data {location!r} lies outside the model's folder",
                "keep model and data in one folder; do not use a model that reads other files",
            )
        if location not in external_data_names(source):
            name, _ = external_data_names(source)
            raise ExportError(
                f"{source}: external data {location!r} has a name that fleetrank does not watch "
                "for changes",
                f"save the model as one file, or with its data in {name}: onnx.save(onnx.load(...),"
                f" ..., save_as_external_data=True, location={name!r})",
            )
        if not target.is_file():
            raise ExportError(
                f"{source}: external data {location!r} is missing", "copy it beside the model"
            )


def _external_locations(message: "Message") -> Iterator[str]:
    """Of all tensors below: initializers, and those in attributes, subgraphs and functions."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.name == "external_data":
            yield from (entry.value for entry in value if entry.key == "location")
            continue
        for part in value if isinstance(value, Sequence) else (value,):
            yield from _external_locations(part)


def _check_tflite(data: bytes, source: Path) -> None:
    """Static checks of a FlatBuffer; what they cannot see, the worker's runtime will."""
    if len(data) < 8 or data[4:8] != _TFLITE_IDENTIFIER:
        raise ExportError(f"{source} is not a TFLite model", "export it again, or correct the path")
    try:
        check_buffers(data)
    except (struct.error, ValueError) as error:
        raise ExportError(
            f"{source} is damaged: it ends in the middle of its data", "copy or export it again"
        ) from error


def _check_pte(source: Path) -> None:
    """The identifier only: the runtime verifies the whole program when it loads it."""
    with source.open("rb") as file:
        head = file.read(8)
    if not _PTE_IDENTIFIER.fullmatch(head[4:8]):
        raise ExportError(
            f"{source} is not an ExecuTorch program", "export it again, or correct the path"
        )


def _check_pt2(source: Path) -> None:
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


def _stage_tensorflow(
    card: ModelCard, source: Path, path: Path, *, is_trusted: bool
) -> tuple[tuple[str, str], ...]:
    if not is_trusted:
        raise UntrustedError(
            f"{source} is a Keras model or SavedModel: converting it can run code from it",
            "say --trust if you trust it",
        )
    versions = library_versions(("tensorflow-cpu",), "tensorflow")
    if source.is_dir() and not (source / "saved_model.pb").is_file():
        raise ExportError(f"{source} is not a SavedModel", f"correct the card of {card.name}")
    convert_to_tflite(source, path)
    return versions


def _float_types() -> frozenset[int]:
    import onnx

    kinds = onnx.TensorProto
    return frozenset((kinds.FLOAT, kinds.FLOAT16, kinds.BFLOAT16, kinds.DOUBLE))


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)

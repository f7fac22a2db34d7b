"""Imports a file that the user exported: checks it, makes it self-contained, never runs it."""

import logging
import re
import shutil
import struct
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.foundation.small_file import check_regular
from fleetrank.models.cards.card import Cost, ExportRequest, ModelCard, StagedExport
from fleetrank.models.errors import ExportError, UntrustedError
from fleetrank.models.export.exporter import library_versions
from fleetrank.models.files.onnx_file import stage_onnx
from fleetrank.models.files.tflite_file import check_buffers
from fleetrank.models.networks.cost import stated_cost

if TYPE_CHECKING:
    pass


def convert_to_tflite(source: Path, path: Path) -> None:
    """Converts a trusted `.keras` or `.h5` file or SavedModel folder.

    Raises:
        ExportError: TensorFlow cannot read or convert it.
    """
    import tensorflow as tf

    try:
        if source.is_dir():
            converter = tf.lite.TFLiteConverter.from_saved_model(str(source))
        else:
            # The file is trusted here, so a model with a Lambda layer is allowed.
            network = tf.keras.models.load_model(source, compile=False, safe_mode=False)
            converter = tf.lite.TFLiteConverter.from_keras_model(network)
        data = converter.convert()
    except (
        Exception
    ) as error:  # Keras and TensorFlow raise many classes, from KeyError to their own
        raise ExportError(
            f"TensorFlow cannot convert {source}: {type(error).__name__}: {error}",
            "convert it to TFLite yourself and give that file",
        ) from error
    path.write_bytes(data)


_LOG = logging.getLogger(__name__)
_TFLITE_IDENTIFIER = b"TFL3"
_PTE_IDENTIFIER = re.compile(rb"ET\d\d")


def stage_file(request: ExportRequest, out_dir: Path, *, is_trusted: bool) -> StagedExport:
    """Copies or converts the file of a card into `out_dir`.

    Raises:
        ExportError: the file is missing, damaged, of another format, or uses files elsewhere.
        UntrustedError: it is a Keras model or SavedModel, whose conversion may run code.
    """
    card = request.card
    source = Path(card.entry)
    if not source.exists():
        raise ExportError(f"{source} does not exist", f"correct 'entry' in the card of {card.name}")
    _check_regular(source, card)
    path = out_dir / f"model.{request.format}"
    cost: Cost | None = None
    versions: tuple[tuple[str, str], ...] = ()
    if source.suffix.lower() == ".onnx":
        versions = library_versions(("onnx",), "onnx")
        cost = stage_onnx(source, path, card.input_size)
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


def _check_regular(source: Path, card: ModelCard) -> None:
    """Rejects pipes and devices, because reading them would never end."""
    if source.is_dir():
        return
    try:
        check_regular(source)
    except OSError as error:
        raise ExportError(
            f"{source} cannot be read: {error.strerror}",
            f"correct 'entry' in the card of {card.name}",
        ) from error


def _check_tflite(data: bytes, source: Path) -> None:
    """Static checks of a FlatBuffer; the worker's runtime detects the remaining errors."""
    if len(data) < 8 or data[4:8] != _TFLITE_IDENTIFIER:
        raise ExportError(f"{source} is not a TFLite model", "export it again, or correct the path")
    try:
        check_buffers(data)
    except (struct.error, ValueError) as error:
        raise ExportError(
            f"{source} is damaged: the file is truncated", "copy or export it again"
        ) from error


def _check_pte(source: Path) -> None:
    """Checks only the identifier; the runtime verifies the whole program when it loads it."""
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
            "add --trust if you trust it",
        )
    versions = library_versions(("tensorflow-cpu",), "tensorflow")
    if source.is_dir() and not (source / "saved_model.pb").is_file():
        raise ExportError(f"{source} is not a SavedModel", f"correct the card of {card.name}")
    convert_to_tflite(source, path)
    return versions

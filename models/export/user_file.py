"""Imports a file that the user exported: checks it, makes it self-contained, never runs it."""

from dataclasses import replace
from pathlib import Path

from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.small_file import check_regular
from fleetrank.models.cards.card import ExportRequest, ModelCard, StagedExport, own_format
from fleetrank.models.cards.identity import why_unknown
from fleetrank.models.errors import ExportError
from fleetrank.models.export.exporters import exporter_of, library_versions
from fleetrank.models.file_inputs import check_sizes
from fleetrank.models.networks.build import check_trust
from fleetrank.models.networks.cost import stated_cost
from fleetrank.models.number_types import read_types
from fleetrank.models.onnx_external_weights import weights_beside
from fleetrank.models.stored_types import StoredTypes


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
    own, cost = own_format(card), None
    check_trust(card, is_trusted=is_trusted)
    check_sizes(card)
    versions = library_versions(request)
    if own is None:
        if source.is_dir() and not (source / "saved_model.pb").is_file():
            raise ExportError(f"{source} is not a SavedModel", f"correct the card of {card.name}")
        _convert_to_tflite(source, path)
    else:
        cost = exporter_of(own).copy(source, path, request)
    types = read_types(path, request.format)
    _check_types(request, path, types)
    if cost is not None and types is not None:
        cost = replace(cost, parameters=types.parameters)
    return StagedExport(
        path=path,
        format=request.format,
        cost=stated_cost(card, cost, request.workload),
        versions=versions,
        weights_path=weights_beside(path),
    )


def _check_types(request: ExportRequest, path: Path, types: StoredTypes | None) -> None:
    """Rejects a file whose rows could state another precision, or whose inputs are text."""
    card = request.card
    found = None if types is None else types.precision
    problem = None
    if types is not None and types.strings:
        problem = (
            f"{card.entry}: input {types.strings[0]!r} takes text, which cannot be generated",
            "leave the tokenizer out of the exported model, so that its inputs are numbers",
        )
    elif found is None and card.precision is None:
        problem = why_unknown(card)
    elif found not in {None, request.precision}:
        problem = (
            f"{card.entry} is {found}, not {request.precision}",
            f'add precision = "{found}" to the card of {card.name}',
        )
    if problem is not None:
        path.unlink()
        raise ExportError(*problem)


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


def _convert_to_tflite(source: Path, path: Path) -> None:
    """Converts a trusted `.keras` or `.h5` file or SavedModel folder.

    Raises:
        ExportError: TensorFlow cannot read or convert it.
    """
    import tensorflow as tf

    remedy = "convert it to TFLite yourself and give that file"
    with failing_as(ExportError, f"TensorFlow cannot convert {source}", remedy):
        if source.is_dir():
            converter = tf.lite.TFLiteConverter.from_saved_model(str(source))
        else:
            # The file is trusted here, so a model with a Lambda layer is allowed.
            network = tf.keras.models.load_model(source, compile=False, safe_mode=False)
            converter = tf.lite.TFLiteConverter.from_keras_model(network)
        data = converter.convert()
    path.write_bytes(data)

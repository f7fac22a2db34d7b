"""Reads the number types of a model file of any format; runs no code of the file."""

import logging
import struct
import zipfile
import zlib
from pathlib import Path

from fleetrank.foundation.formats import described
from fleetrank.foundation.onnx_file import StoredInput, onnx_inputs
from fleetrank.foundation.vocabulary import RUNTIME_OF_FORMAT, Format
from fleetrank.models.onnx_types import onnx_types
from fleetrank.models.pt2_types import pt2_inputs, pt2_types
from fleetrank.models.pte_types import pte_inputs, pte_types
from fleetrank.models.stored_types import StoredTypes
from fleetrank.models.tflite_types import tflite_inputs, tflite_types

_LOG = logging.getLogger(__name__)
UNREADABLE = (
    OSError, ValueError, KeyError, IndexError, TypeError, RecursionError, NotImplementedError,
    RuntimeError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What the readers raise on a file that is damaged, encrypted or of another version."""


def read_types(path: Path, format_: Format) -> StoredTypes | None:
    """The number types that a file states; `None` if they cannot be read.

    A damaged file is not reported here: the export checks the file and reports what is wrong.
    """
    readers = {Format.ONNX: onnx_types, Format.TFLITE: tflite_types, Format.PTE: pte_types}
    try:
        if format_ not in RUNTIME_OF_FORMAT:
            facts = described(format_, str(path))
            weights = ((facts.weight_type, facts.parameters),)
            return StoredTypes(weights=weights, parameters=facts.parameters)
        return pt2_types(path) if format_ is Format.PT2 else readers[format_](path.read_bytes())
    except UNREADABLE as error:
        _LOG.debug("types of %s not read: %s", path, error)
        return None


def read_inputs(path: Path, format_: Format) -> list[StoredInput]:
    """The inputs that a file states.

    Raises:
        UNREADABLE: it is not a readable file of this format.
    """
    if format_ not in RUNTIME_OF_FORMAT:
        raise NotImplementedError(f"the runtime of {format_} files states their inputs")
    readers = {Format.ONNX: onnx_inputs, Format.TFLITE: tflite_inputs, Format.PTE: pte_inputs}
    return pt2_inputs(path) if format_ is Format.PT2 else readers[format_](path.read_bytes())

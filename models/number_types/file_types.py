"""Reads the number types of a model file of any format; runs no code of the file."""

import logging
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from fleetrank.foundation.vocabulary import Format
from fleetrank.models.number_types.onnx_types import onnx_types
from fleetrank.models.number_types.pt2_types import pt2_types
from fleetrank.models.number_types.pte_types import pte_types
from fleetrank.models.number_types.stored_types import StoredTypes
from fleetrank.models.number_types.tflite_types import tflite_types

_LOG = logging.getLogger(__name__)
_READERS: Mapping[Format, Callable[[Path], StoredTypes]] = {
    Format.ONNX: lambda path: onnx_types(path.read_bytes()),
    Format.PT2: pt2_types,
    Format.TFLITE: lambda path: tflite_types(path.read_bytes()),
    Format.PTE: lambda path: pte_types(path.read_bytes()),
}
UNREADABLE = (
    OSError, ValueError, KeyError, IndexError, TypeError, RecursionError, NotImplementedError,
    RuntimeError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What the readers raise on a file that is damaged, encrypted or of another version."""


def read_types(path: Path, format_: Format) -> StoredTypes | None:
    """The number types that a file states; `None` if they cannot be read.

    A damaged file is not reported here: the export checks the file and reports what is wrong.
    """
    reader = _READERS.get(format_)
    try:
        return None if reader is None else reader(path)
    except UNREADABLE as error:
        _LOG.debug("types of %s not read: %s", path, error)
        return None

"""Checks that a TFLite FlatBuffer contains all of its weights, without reading the rest.

Source: tensorflow/lite/schema/schema.fbs: `Model.buffers` is field 4; of `Buffer`, field 0 is the
data inside the FlatBuffer, fields 1 and 2 are offset and size of data appended to it.
"""

from fleetrank.models.number_types.flatbuffer import (
    child_of,
    field_of,
    long_of,
    root_of,
    tables_of,
    unsigned,
)

_MODEL_BUFFERS = 4
_BUFFER_DATA, _BUFFER_OFFSET, _BUFFER_SIZE = 0, 1, 2


def check_buffers(data: bytes) -> None:
    """Checks that every buffer of the model ends inside the file.

    Raises:
        struct.error: a table is beyond the end of the file.
        ValueError: a buffer's data is beyond the end of the file.
    """
    model = root_of(data)
    if field_of(data, model, _MODEL_BUFFERS) is None:
        raise ValueError("no buffers")
    for buffer in tables_of(data, model, _MODEL_BUFFERS):
        _check_buffer(data, buffer)


def _check_buffer(data: bytes, buffer: int) -> None:
    vector = child_of(data, buffer, _BUFFER_DATA)
    if vector is not None:
        _check_end(data, vector + 4 + unsigned(data, vector))
    _check_end(data, long_of(data, buffer, _BUFFER_OFFSET), long_of(data, buffer, _BUFFER_SIZE))


def _check_end(data: bytes, *parts: int) -> None:
    if sum(parts) > len(data):
        raise ValueError("a buffer ends beyond the end of the file")

"""Checks that a TFLite FlatBuffer contains all of its weights, without reading the rest.

Source: tensorflow/lite/schema/schema.fbs: `Model.buffers` is field 4; of `Buffer`, field 0 is the
data inside the FlatBuffer, fields 1 and 2 are offset and size of data appended to it.
"""

import struct

_MODEL_BUFFERS, _BUFFER_DATA, _BUFFER_OFFSET, _BUFFER_SIZE = 4, 0, 1, 2


def check_buffers(data: bytes) -> None:
    """Checks that every buffer of the model ends inside the file.

    Raises:
        struct.error: a table is beyond the end of the file.
        ValueError: a buffer's data is beyond the end of the file.
    """
    model = _unsigned(data, 0)
    field = _field(data, model, _MODEL_BUFFERS)
    if field is None:
        raise ValueError("no buffers")
    vector = field + _unsigned(data, field)
    for number in range(_unsigned(data, vector)):
        slot = vector + 4 + 4 * number
        _check_buffer(data, slot + _unsigned(data, slot))


def _check_buffer(data: bytes, buffer: int) -> None:
    field = _field(data, buffer, _BUFFER_DATA)
    if field is not None:
        vector = field + _unsigned(data, field)
        _check_end(data, vector + 4 + _unsigned(data, vector))
    offset = _field(data, buffer, _BUFFER_OFFSET)
    size = _field(data, buffer, _BUFFER_SIZE)
    if offset is not None and size is not None:
        _check_end(
            data, *struct.unpack_from("<Q", data, offset), *struct.unpack_from("<Q", data, size)
        )


def _check_end(data: bytes, *parts: int) -> None:
    if sum(parts) > len(data):
        raise ValueError("a buffer ends beyond the end of the file")


def _field(data: bytes, table: int, number: int) -> int | None:
    """The position of a table's field; `None` if the field is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if vtable < 0:
        raise ValueError("a table points before the start of the file")
    if 4 + 2 * number >= struct.unpack_from("<H", data, vtable)[0]:
        return None
    offset: int = struct.unpack_from("<H", data, vtable + 4 + 2 * number)[0]
    return table + offset if offset else None


def _unsigned(data: bytes, at: int) -> int:
    value: int = struct.unpack_from("<I", data, at)[0]
    return value

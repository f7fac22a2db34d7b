"""Reads and writes fields of a protobuf message by number, without its schema's code.

Source: the encoding guide of protobuf.
"""

import mmap
import struct
from collections.abc import Iterator

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10
_MOST_NUMBERS = 1000
"""Of one packed field: a tensor has at most some ten sizes."""
Buffer = bytes | mmap.mmap
Span = tuple[int, int]
"""Where the bytes of a field start and end."""
Value = int | Span


def spans_of(data: Buffer, span: Span) -> Iterator[tuple[int, Span]]:
    """The fields of a message that are messages, texts or bytes; errors as `fields_of`."""
    return ((number, value) for number, value in fields_of(data, span) if isinstance(value, tuple))


def fields_of(data: Buffer, span: Span) -> Iterator[tuple[int, Value]]:
    """(number, value) of a message's fields: an integer, or where its bytes start and end.

    Fields of fixed width are skipped.

    Raises:
        ValueError: the bytes are not a message.
    """
    found = _wired(data, span)
    return ((number, value) for number, wire, value in found if wire in (_VARINT, _BYTES))


def floats_of(data: Buffer, span: Span) -> Iterator[tuple[int, float]]:
    """The fields of type float; errors as `fields_of`."""
    for number, wire, value in _wired(data, span):
        if wire == _FOUR_BYTES and isinstance(value, tuple):
            yield number, struct.unpack_from("<f", data, value[0])[0]


def _wired(data: Buffer, span: Span) -> Iterator[tuple[int, int, Value]]:
    """Every field with its wire type."""
    at, end = span
    while at < end:
        key, at = _varint(data, at, end)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at, end)
            yield number, wire, value
            continue
        if wire == _BYTES:
            length, at = _varint(data, at, end)
        elif wire in (_EIGHT_BYTES, _FOUR_BYTES):
            length = 8 if wire == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"unknown wire type {wire}")
        if length > end - at:
            raise ValueError("a field ends beyond its message")
        yield number, wire, (at, at + length)
        at += length


def packed_numbers(data: bytes, span: Span) -> list[int]:
    """The integers of a packed field, such as the sizes of a tensor.

    Raises:
        ValueError: a number does not end, or there are very many.
    """
    at, end = span
    numbers = []
    while at < end:
        number, at = _varint(data, at, end)
        numbers.append(number)
        if len(numbers) > _MOST_NUMBERS:
            raise ValueError("too many numbers in one field")
    return numbers


def _varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : min(end, at + _MOST_VARINT_BYTES)]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("a number does not end")

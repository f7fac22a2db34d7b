"""Fields of protobuf messages and of FlatBuffers, read by number without a schema's code."""

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# Reads and writes fields of a protobuf message by number, without its schema's code.
#
# Source: the encoding guide of protobuf.

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


def encode_floats(values: Mapping[int, float | None]) -> bytes:
    """Fields of type float, by number; `None` is omitted."""
    return b"".join(
        _encoded(number << 3 | _FOUR_BYTES) + struct.pack("<f", value)
        for number, value in values.items()
        if value is not None
    )


def encode_integers(values: Mapping[int, int]) -> bytes:
    """Fields of type int32 or int64 that are not negative, by number."""
    return b"".join(
        _encoded(number << 3 | _VARINT) + _encoded(value) for number, value in values.items()
    )


def encode_messages(parts: Mapping[int, bytes]) -> bytes:
    """Fields that are messages themselves, by number."""
    return b"".join(
        _encoded(number << 3 | _BYTES) + _encoded(len(part)) + part
        for number, part in parts.items()
    )


def _encoded(value: int) -> bytes:
    """A varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


# Reads tables of a FlatBuffer by field number; every position is checked by `struct`.
#
# Source: FlatBuffers' internals: a table begins with the distance back to its vtable, which holds
# the offset of each field, 0 if the field is absent.

MOST_ITEMS = 1_000_000
"""Limit of one vector: more than any network has tensors; vectors of a hostile file may overlap."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a file; an absent field is 0, empty or without entries.

    All methods raise `struct.error` for what is beyond the end of the file, and `ValueError` for
    what is before its start.
    """

    data: bytes
    at: int

    @classmethod
    def root(cls, data: bytes) -> "Table":
        """The root table of a file."""
        return cls(data, _unsigned(data, 0))

    def place(self, field: int) -> int | None:
        """The position of a field; `None` if it is absent."""
        vtable = self.at - struct.unpack_from("<i", self.data, self.at)[0]
        if vtable < 0:
            raise ValueError("a table points before the start of the file")
        if 4 + 2 * field >= struct.unpack_from("<H", self.data, vtable)[0]:
            return None
        offset: int = struct.unpack_from("<H", self.data, vtable + 4 + 2 * field)[0]
        return self.at + offset if offset else None

    def child(self, field: int) -> int | None:
        """The position of the table, vector or string that a field points to."""
        place = self.place(field)
        return None if place is None else place + _unsigned(self.data, place)

    def table(self, field: int) -> "Table | None":
        """The table that a field points to."""
        child = self.child(field)
        return None if child is None else Table(self.data, child)

    def number(self, field: int, form: str = "<I") -> int:
        """A whole number of a form of `struct`: unsigned, of four bytes, if not stated."""
        place = self.place(field)
        return 0 if place is None else int(struct.unpack_from(form, self.data, place)[0])

    def tables(self, field: int) -> "Iterator[Table]":
        """The tables in a vector."""
        for slot in self._slots(field, MOST_ITEMS):
            yield Table(self.data, slot + _unsigned(self.data, slot))

    def numbers(self, field: int, most: int = MOST_ITEMS) -> tuple[int, ...]:
        """The signed numbers of four bytes in a vector of at most so many."""
        slots = self._slots(field, most)
        return tuple(struct.unpack_from("<i", self.data, slot)[0] for slot in slots)

    def floats(self, field: int) -> tuple[float, ...]:
        """The numbers of four bytes with a fraction in a vector."""
        slots = self._slots(field, MOST_ITEMS)
        return struct.unpack_from(f"<{len(slots)}f", self.data, slots.start)

    def length(self, field: int) -> int:
        """The number of items in a vector."""
        vector = self.child(field)
        return 0 if vector is None else _unsigned(self.data, vector)

    def end(self, field: int) -> int:
        """Where the bytes of a vector of bytes end; 0 if it is absent."""
        vector = self.child(field)
        return 0 if vector is None else vector + 4 + _unsigned(self.data, vector)

    def text(self, field: int) -> str:
        """A string."""
        start = self.child(field)
        return (
            ""
            if start is None
            else self.data[start + 4 : self.end(field)].decode("utf-8", "replace")
        )

    def _slots(self, field: int, most: int) -> range:
        vector, count = self.child(field), self.length(field)
        if count > most:
            raise ValueError(f"a vector has {count:,} items")
        return range(0) if vector is None else range(vector + 4, vector + 4 + 4 * count, 4)


def _unsigned(data: bytes, at: int) -> int:
    value: int = struct.unpack_from("<I", data, at)[0]
    return value

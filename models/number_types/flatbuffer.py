"""Reads tables of a FlatBuffer by field number; every position is checked by `struct`.

Source: FlatBuffers' internals: a table begins with the distance back to its vtable, which holds the
offset of each field, 0 if the field is absent.
"""

import struct
from collections.abc import Iterator

MOST_ITEMS = 1_000_000
"""Limit of one vector: more than any network has tensors; vectors of a hostile file may overlap."""


def root_of(data: bytes) -> int:
    """The position of the root table."""
    return unsigned(data, 0)


def field_of(data: bytes, table: int, number: int) -> int | None:
    """The position of a table's field; `None` if the field is absent.

    Raises:
        struct.error: the table is beyond the end of the file.
        ValueError: the table points before the start of the file.
    """
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if vtable < 0:
        raise ValueError("a table points before the start of the file")
    if 4 + 2 * number >= struct.unpack_from("<H", data, vtable)[0]:
        return None
    offset: int = struct.unpack_from("<H", data, vtable + 4 + 2 * number)[0]
    return table + offset if offset else None


def child_of(data: bytes, table: int, number: int) -> int | None:
    """The position of the table, vector or string that a field points to."""
    field = field_of(data, table, number)
    return None if field is None else field + unsigned(data, field)


def byte_of(data: bytes, table: int, number: int) -> int:
    """A field of one byte; 0, the default, if it is absent."""
    field = field_of(data, table, number)
    return 0 if field is None else int(struct.unpack_from("<B", data, field)[0])


def number_of(data: bytes, table: int, number: int) -> int:
    """An unsigned field of four bytes; 0, the default, if it is absent."""
    field = field_of(data, table, number)
    return 0 if field is None else unsigned(data, field)


def long_of(data: bytes, table: int, number: int) -> int:
    """An unsigned field of eight bytes; 0, the default, if it is absent."""
    field = field_of(data, table, number)
    return 0 if field is None else int(struct.unpack_from("<Q", data, field)[0])


def tables_of(data: bytes, table: int, number: int) -> Iterator[int]:
    """The positions of the tables in a vector; none if the field is absent."""
    for slot in _slots(data, table, number):
        yield slot + unsigned(data, slot)


def numbers_of(data: bytes, table: int, number: int, most: int = MOST_ITEMS) -> tuple[int, ...]:
    """The signed four-byte numbers in a vector; none if the field is absent.

    Raises:
        ValueError: there are more than `most`.
    """
    slots = _slots(data, table, number, most)
    return tuple(struct.unpack_from("<i", data, slot)[0] for slot in slots)


def length_of(data: bytes, table: int, number: int) -> int:
    """The number of items in a vector; 0 if the field is absent."""
    vector = child_of(data, table, number)
    return 0 if vector is None else unsigned(data, vector)


def text_of(data: bytes, table: int, number: int) -> str:
    """A string; empty if the field is absent."""
    start = child_of(data, table, number)
    if start is None:
        return ""
    return data[start + 4 : start + 4 + unsigned(data, start)].decode("utf-8", "replace")


def unsigned(data: bytes, at: int) -> int:
    """Four bytes as an unsigned number."""
    value: int = struct.unpack_from("<I", data, at)[0]
    return value


def _slots(data: bytes, table: int, number: int, most: int = MOST_ITEMS) -> range:
    vector = child_of(data, table, number)
    if vector is None:
        return range(0)
    count = unsigned(data, vector)
    if count > most:
        raise ValueError(f"a vector has {count:,} items")
    return range(vector + 4, vector + 4 + 4 * count, 4)

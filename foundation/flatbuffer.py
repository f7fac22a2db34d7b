"""Reads tables of a FlatBuffer by field number; every position is checked by `struct`.

Source: FlatBuffers' internals: a table begins with the distance back to its vtable, which holds the
offset of each field, 0 if the field is absent.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

MOST_ITEMS = 1_000_000
"""Limit of one vector: more than any network has tensors; vectors of a hostile file may overlap."""


@dataclass(frozen=True, slots=True)
class FlatBufferTable:
    """A table of a file; an absent field is 0, empty or without entries.

    All methods raise `struct.error` for what is beyond the end of the file, and `ValueError` for
    what is before its start.
    """

    data: bytes
    at: int

    @classmethod
    def root(cls, data: bytes) -> "FlatBufferTable":
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

    def table(self, field: int) -> "FlatBufferTable | None":
        """The table that a field points to."""
        child = self.child(field)
        return None if child is None else FlatBufferTable(self.data, child)

    def number(self, field: int, form: str = "<I") -> int:
        """A whole number of a form of `struct`: unsigned, of four bytes, if not stated."""
        place = self.place(field)
        return 0 if place is None else int(struct.unpack_from(form, self.data, place)[0])

    def tables(self, field: int) -> "Iterator[FlatBufferTable]":
        """The tables in a vector."""
        for slot in self._slots(field, MOST_ITEMS):
            yield FlatBufferTable(self.data, slot + _unsigned(self.data, slot))

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

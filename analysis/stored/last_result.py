"""Keeps what was made last, for many tables of one scan made one after the other."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class LastResult(Generic[T]):
    """One result, found again by the very object it was made from and by a key.

    Not a cache of many: a scan of a million rows and what is made of it take hundreds of MB.
    """

    def __init__(self) -> None:
        """Holds nothing yet."""
        self._entry: tuple[object, Hashable, T] | None = None

    def get(self, source: object, key: Hashable, make: Callable[[], T]) -> T:
        """The result kept for this object (itself, not its like) and key, else a new one."""
        if self._entry is not None and self._entry[0] is source and self._entry[1] == key:
            return self._entry[2]
        self._entry = None  # the old one goes before the new one needs the room
        result = make()
        self._entry = (source, key, result)
        return result

"""Keeps the last result, for several tables that are made from one scan in sequence."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class LastResult(Generic[T]):
    """One result, kept for the object it was made from and a key.

    It keeps only one: a scan of a million rows and its result take hundreds of MB.
    """

    def __init__(self) -> None:
        """Creates it without a result."""
        self._entry: tuple[object, Hashable, T] | None = None

    def get(self, source: object, key: Hashable, make: Callable[[], T]) -> T:
        """The result kept for this object (by identity) and key, or else a new one."""
        if self._entry is not None and self._entry[0] is source and self._entry[1] == key:
            return self._entry[2]
        self._entry = None  # free the old result before the new one needs memory
        result = make()
        self._entry = (source, key, result)
        return result

"""Members of a family by name; a member is imported only on request.

Adding a member is one line in the table of its family: the name and `"module:attribute"`.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast

from fleetrank.foundation.errors import FleetError, did_you_mean

T = TypeVar("T")


def later(place: str) -> Callable[..., T]:
    """The function or class at `"module:attribute"`, imported at its first call."""

    def call(*arguments: Any, **named: Any) -> Any:
        return _imported(place)(*arguments, **named)

    return call


class UnknownNameError(FleetError):
    """The family has no member of this name; the remedy names the nearest, or all of them."""


class Registry(Mapping[str, str], Generic[T]):
    """The members of one family, from name to `"module:attribute"`.

    Args:
        noun: what one member is, for messages: `runtime`.
        members: the table; messages list the names in its order.
    """

    def __init__(self, noun: str, members: Mapping[str, str]) -> None:
        self._noun = noun
        self._members = dict(members)

    def __getitem__(self, name: str) -> str:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def load(self, name: str) -> T:
        """Imports the member's module and returns the member, such as a class.

        Raises:
            UnknownNameError: no member has this name.
            ImportError: the module, or a library that it needs, is not installed.
        """
        if name not in self._members:
            raise UnknownNameError(
                f"no {self._noun} '{name}'",
                f"{did_you_mean(name, self._members)}there are {', '.join(self._members)}",
            )
        return cast("T", _imported(self._members[name]))


def _imported(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)

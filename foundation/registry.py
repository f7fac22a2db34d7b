"""Members of a family by name; a member is imported only on request.

Adding a member is one line in the table of its family: the name and `"module:attribute"`. Other
packages add members by entry points.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast

from fleetrank.foundation.entry_points import Outside, imported
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.wording import did_you_mean

T = TypeVar("T")


def later(place: str) -> Callable[..., T]:
    """The function or class at `"module:attribute"`, imported at its first call."""

    def call(*arguments: Any, **named: Any) -> Any:
        return imported(place)(*arguments, **named)

    return call


class UnknownNameError(FleetError):
    """The family has no member of this name; the remedy names the nearest, or all of them."""


class Registry(Mapping[str, str], Generic[T]):
    """The members of one family, from name to `"module:attribute"`.

    As a mapping it has fleetrank's own members only.

    Args:
        noun: what one member is, for messages: `runtime`.
        members: the table; messages list the names in its order.
        outside: members of other packages; `None` for a family that is closed.
    """

    def __init__(
        self, noun: str, members: Mapping[str, str], outside: Outside[T] | None = None
    ) -> None:
        self._noun = noun
        self._members = dict(members)
        self._outside = outside

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
            EntryPointError: the package that adds it is broken.
            ImportError: the module, or a library that it needs, is not installed.
        """
        if name in self._members:
            return cast("T", imported(self._members[name]))
        found = None if self._outside is None else self._outside.load(name)
        if found is not None:
            return found
        known = (*self, *(self._outside.names() if self._outside is not None else ()))
        raise UnknownNameError(
            f"no {self._noun} '{name}'", f"{did_you_mean(name, known)}there are {', '.join(known)}"
        )

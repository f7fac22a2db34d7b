"""Members that installed packages add to a family, by entry points such as `fleetrank.kinds`.

The files of packages are read when a name is asked that fleetrank itself does not have, or when all
members are listed. The code of a package is imported when its member is used; it is trusted like
that of any dependency. A broken or doubled entry point concerns its name alone.
"""

import re
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.visible_text import shortened, visible_line
from fleetrank.foundation.vocabulary import OPEN_WORD

if TYPE_CHECKING:
    from importlib import metadata

T = TypeVar("T")

_PLACE = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*(\.\w+)*", re.ASCII)
_TEXT = "entry_points.txt"


class EntryPointError(FleetError):
    """A member of another package cannot be used; names the package and the entry point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPoint:
    """A member that an installed package adds.

    Attributes:
        place: `module:attribute`.
        package: name of the distribution.
        error: why the member cannot be used; `None` if nothing is known against it.
    """

    name: str
    place: str
    package: str
    version: str
    error: EntryPointError | None = None

    @property
    def maker(self) -> str:
        """Package and version, as rows state them: `fleetrank-npz 0.1.0`."""
        return f"{self.package} {self.version}"

    def broken(self, why: str, remedy: str | None = None) -> EntryPointError:
        """The error of this entry point; without a remedy its maker has to correct the package."""
        return EntryPointError(
            f"entry point '{self.name} = {self.place}' of package {self.maker}: {why}",
            remedy or f"`pip install --upgrade {self.package}`, or `pip uninstall {self.package}`",
        )


class Outside(Generic[T]):
    """The members of one family that other packages add.

    Args:
        noun: what one member is, for messages: `runtime`.
        group: of the entry points.
        own: the names of fleetrank's own members, which cannot be replaced.
        why_not: loaded object to what it lacks of the contract, or `None`.
    """

    def __init__(
        self,
        noun: str,
        group: str,
        own: Container[str],
        why_not: Callable[[object], str | None],
    ) -> None:
        self._noun = noun
        self._group = group
        self._own = own
        self._why_not = why_not

    def names(self) -> tuple[str, ...]:
        """The names that nothing is known against, sorted; imports no package."""
        return tuple(one.name for one in self._found() if one.error is None)

    def load(self, name: str) -> T | None:
        """The member of another package, which is imported; `None` if none has the name.

        Raises:
            EntryPointError: the entry point is broken, or two packages give this name.
        """
        found = self._named(name)
        return None if found is None else self._load(found)

    def maker_of(self, name: str) -> str | None:
        """Package and version that give a member; `None` if the member is fleetrank's own."""
        found = self._named(name)
        return None if found is None or found.error is not None else found.maker

    def examined(self) -> Iterator[EntryPoint]:
        """Every entry point of the group, each imported, with its error if it has one."""
        for one in self._found():
            try:
                self._load(one)
                yield one
            except EntryPointError as error:
                yield replace(one, error=error)

    def loaded(self) -> dict[str, T]:
        """The usable members by name; leaves out the broken ones, which the doctor lists."""
        found = {}
        for one in self._found():
            with suppress(EntryPointError):
                found[one.name] = self._load(one)
        return found

    def _named(self, name: str) -> EntryPoint | None:
        if name in self._own or OPEN_WORD.fullmatch(name) is None:
            return None
        return next((one for one in self._found() if one.name == name), None)

    def _found(self) -> Iterator[EntryPoint]:
        for one in entry_points_of(self._group):
            if one.name not in self._own:
                yield one
                continue
            why = f"fleetrank has a {self._noun} '{one.name}' itself, which is used"
            yield replace(one, error=one.broken(why, f"`pip uninstall {one.package}`"))

    def _load(self, found: EntryPoint) -> T:
        if found.error is not None:
            raise found.error
        try:
            member = imported(found.place)
            why = self._why_not(member)
        # A package can raise anything while it is imported; some call `exit`.
        except (Exception, SystemExit) as error:
            said = visible_line(shortened(f"{type(error).__name__}: {error}", 300))
            raise found.broken(said) from error
        if why is not None:
            raise found.broken(why)
        return cast("T", member)


@cache
def entry_points_of(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, sorted by name; those that are wrong have an error.

    Reads the files of all installed packages, once in a process; imports no package.
    """
    from importlib import metadata  # takes 20 ms, and every command imports this module

    packages: dict[str, metadata.Distribution] = {}
    found: list[EntryPoint] = []
    for package in metadata.distributions():
        found += _of_package(package, group, packages)
    makers: dict[str, list[str]] = {}
    for one in found:
        makers.setdefault(one.name, []).append(one.maker)
    for place, one in enumerate(found):
        if len(makers[one.name]) > 1:
            why = f"{' and '.join(sorted(makers[one.name]))} give the same name, so it is not used"
            remedy = f"`pip uninstall {one.package}`, or the other one"
            found[place] = replace(one, error=one.broken(why, remedy))
    return tuple(sorted(found, key=lambda one: (one.name, one.package)))


def _of_package(
    package: "metadata.Distribution", group: str, seen: "dict[str, metadata.Distribution]"
) -> Iterator[EntryPoint]:
    """The entry points of a package that is not `seen` yet: the first one on the path counts."""
    name = version = ""
    try:
        text = package.read_text(_TEXT)
        if text is None or f"[{group}]" not in text:
            return
        name, version = str(package.metadata["Name"]), str(package.version)
        name, version = (visible_line(shortened(one)) for one in (name, version))
        if seen.setdefault(name, package) is not package:
            return
        stated = [(one.name, one.value) for one in package.entry_points if one.group == group]
    except Exception as error:  # damage of a file can cause every one
        with suppress(Exception):
            name = name or str(package.metadata["Name"])
        broken = EntryPoint(name="?", place="?", package=name or "?", version=version)
        why = f"its {_TEXT} cannot be read: {type(error).__name__}: {shortened(str(error))}"
        yield replace(broken, error=broken.broken(why, f"install {name} again, or remove it"))
        return
    yield from (_checked(name, version, *one) for one in stated)


def _checked(package: str, version: str, name: str, place: str) -> EntryPoint:
    shown, where = (visible_line(shortened(text)) for text in (name, place))
    found = EntryPoint(name=shown, place=where, package=package, version=version)
    why = None
    if OPEN_WORD.fullmatch(name) is None:
        why = "a name has 1 to 30 small letters, digits, '-' and '_', and starts with a letter"
    elif _PLACE.fullmatch(place) is None:
        why = "its value is not of the form module:attribute"
    return found if why is None else replace(found, error=found.broken(why))


def imported(place: str) -> Any:
    """The function, class or value at `module:attribute`."""
    module, _, path = place.partition(":")
    member = import_module(module)
    for attribute in path.split("."):
        member = getattr(member, attribute)
    return member

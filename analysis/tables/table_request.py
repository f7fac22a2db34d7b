"""One table with its settings, as a user gives them."""

from dataclasses import dataclass, replace

from fleetrank.analysis.stored.selection import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRequest:
    """A table and the words of its settings; the other settings have their defaults.

    Attributes:
        table: a name in `tables.TABLES`.
        settings: name and word of each setting.
    """

    table: str
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def words(self) -> str:
        """As `fleetrank report show` takes it: `cells --quantity memory`."""
        return " ".join([self.table, *(f"--{name} {word}" for name, word in self.settings)])

    @property
    def sentence(self) -> str:
        """As a message names it: `` 'cells' with `quantity=memory` ``."""
        given = " and ".join(f"`{name}={word}`" for name, word in self.settings)
        return f"'{self.table}' with {given}" if given else f"'{self.table}'"

    def selection(self, base: Selection) -> Selection:
        """The selection with these settings; a setting that it has already counts more."""
        if not self.settings:
            return base
        return replace(base, settings=(*self.settings, *base.settings))

"""The settings of single tables: their names, the words that they take, and their defaults.

To add one: describe it in `table_settings.toml`, and read it in the table's function with
`Setting.chosen` (words) or `stored.selection.setting` (numbers and texts). A setting with words is
then an option of `report show`.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.foundation.errors import nearest
from fleetrank.foundation.vocabulary import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of a table, given as `set NAME=VALUE`.

    Attributes:
        meaning: what it does, as help and reference show it.
        words: the only values; empty for a number or a text, whose default the function has.
        default: one of the words; empty if the table shows all without the setting.
        is_many: takes several words, separated by commas.
        needs: another setting and the word that it must have; otherwise this one has no effect.
    """

    name: str
    meaning: str
    words: tuple[str, ...] = ()
    default: str = ""
    is_many: bool = False
    needs: "tuple[Setting, str] | None" = None

    def chosen(self, selection: Selection) -> str:
        """The user's word, or else the default; of many, separated by commas."""
        return setting(selection, self.name, self.default)

    def refuse_unknown(self, value: object) -> None:
        """Accepts the words only, if the setting has any.

        Raises:
            AnalysisError: the value is not one of the words; the remedy names the nearest.
        """
        given = str(value).split(",") if self.is_many else [str(value)]
        for word in given if self.words else ():
            if self.is_many and word.strip().replace(" ", "-") in ("", *self.words):
                continue
            if word not in self.words:
                near = nearest(word, self.words)
                hint = f"did you mean '{near}'? " if near else ""
                raise AnalysisError(
                    f"setting '{self.name}' has no value '{word}'",
                    f"{hint}it takes {', '.join(self.words)}",
                )


def _settings_of(table: Mapping[str, Any]) -> Mapping[str, Setting]:
    found: dict[str, Setting] = {}
    for name, given in table.items():
        words, needs = given.pop("words", ()), given.pop("needs", {})
        if words == "problems":
            words = [kind.replace(" ", "-") for kind in Problem]
        found[name] = Setting(
            name=name,
            words=tuple(words),
            needs=next(((found[other], word) for other, word in needs.items()), None),
            **given,
        )
    return MappingProxyType(found)


SETTINGS: Mapping[str, Mapping[str, Setting]] = MappingProxyType(
    {
        table: _settings_of(given)
        for table, given in tomllib.loads(
            Path(__file__).with_name("table_settings.toml").read_text(encoding="utf-8")
        ).items()
    }
)
"""Of each table, by name; a table without settings is absent."""
COMPARED = SETTINGS["pairs"]["quantity"]
ORDERS = SETTINGS["pairs"]["part"]
QUANTITY = SETTINGS["cells"]["quantity"]
PREDICTED = SETTINGS["predictions"]["quantity"]
SCORE = SETTINGS["frm"]["score"]
ALONG = SETTINGS["transfer"]["along"]
DETAIL = SETTINGS["transfer"]["detail"]
METHOD = SETTINGS["predictability"]["method"]
BY_ROW = SETTINGS["disagreement"]["by"]
OWN = SETTINGS["proxies"]["own"]
OVER = SETTINGS["effort"]["over"]
PART = SETTINGS["variance"]["part"]
AXIS = SETTINGS["scaling"]["over"]
CURVES = SETTINGS["scaling"]["part"]
FILES = SETTINGS["memory"]["part"]
FIELDS_OF_RUN = SETTINGS["summary"]["part"]
LIST = SETTINGS["quality"]["list"]
WHAT = SETTINGS["quality"]["what"]
SPLIT = SETTINGS["components"]["split"]
DEPTH = SETTINGS["components"]["depth"]
READING = SETTINGS["strategies"]["part"]
FRM_WEIGHTS = ("weight_flops", "weight_latency", "weight_memory")


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
    def file_stem(self) -> str:
        """Name of a file of this table without its ending: `cells-coldstart`."""
        return "-".join([self.table, *(word for _, word in self.settings)])

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


def refuse_wrong_settings(table: str, known: Sequence[Setting], selection: Selection) -> None:
    """Accepts the settings that a table has, with the values that they take.

    Raises:
        AnalysisError: the table lacks a setting, the value is unknown, or the setting has no
            effect; the remedy says what to give.
    """
    by_name = {one.name: one for one in known}
    for name, value in selection.settings:
        if name not in by_name:
            near = nearest(name, by_name)
            hint = f"did you mean '{near}'? " if near else ""
            raise AnalysisError(
                f"table '{table}' has no setting '{name}'",
                hint + (f"it takes {', '.join(by_name)}" if known else "it takes none"),
            )
        by_name[name].refuse_unknown(value)
        needs = by_name[name].needs
        if needs is not None and needs[0].chosen(selection) != needs[1]:
            raise AnalysisError(
                f"setting '{name}' of table '{table}' has no effect with "
                f"{needs[0].name}={needs[0].chosen(selection)}",
                f"add `{needs[0].name}={needs[1]}`",
            )

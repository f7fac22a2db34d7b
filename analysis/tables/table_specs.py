"""The tables by name: the question of each, its parts, and their settings, from `table_specs.toml`.

To add a setting: describe it in the file, and read it in the function of the part with
`Setting.chosen` (words) or `stored.selection.setting` (numbers and texts). It is then an option of
`report show` and a name for `Selection.settings`.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.foundation.errors import did_you_mean
from fleetrank.foundation.vocabulary import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of a table.

    Attributes:
        meaning: what it does, as help and reference show it.
        parts: of the table, on which it has an effect; empty for all.
        words: the only values; empty for a number or a text, whose default the function has.
        default: one of the words; empty if the table shows all without the setting.
        is_many: takes several words, separated by commas.
        is_start: takes the beginning of a word too.
    """

    name: str
    meaning: str
    parts: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    default: str = ""
    is_many: bool = False
    is_start: bool = False

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
            if self.is_start and any(one.startswith(word) for one in self.words):
                continue
            if word not in self.words:
                raise AnalysisError(
                    f"setting '{self.name}' has no value '{word}'",
                    f"{did_you_mean(word, self.words)}it takes {', '.join(self.words)}",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One view of the answer of a table; the keys of `table_specs.toml` explain the fields."""

    table: str
    name: str
    function: str
    shows: str
    is_of_pairs: bool
    is_ranking: bool
    is_apart: bool
    settings: Mapping[str, Setting]

    def refuse_wrong_settings(self, selection: Selection) -> None:
        """Accepts the settings that this part has, with the values that they take.

        Raises:
            AnalysisError: the part lacks a setting, or the value is unknown; the remedy says what
                to give.
        """
        for name, value in selection.settings:
            if name in self.settings:
                self.settings[name].refuse_unknown(value)
                continue
            elsewhere = TABLES[self.table].settings.get(name)
            if elsewhere is not None:
                raise AnalysisError(
                    f"setting '{name}' has no effect on {self.said}",
                    " or ".join(f"add `part={part}`" for part in elsewhere.parts),
                )
            takes = ", ".join(self.settings) or "no setting"
            raise AnalysisError(
                f"table '{self.table}' has no setting '{name}'",
                f"{did_you_mean(name, self.settings)}{self.said} takes {takes}",
            )

    @property
    def said(self) -> str:
        """As a message names it."""
        return f"part '{self.name}' of table '{self.table}'"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """One question, and what a user can give it.

    Attributes:
        parts: by name; the first one is shown without a choice.
        settings: of all parts, by name.
    """

    name: str
    question: str
    parts: Mapping[str, Part]
    settings: Mapping[str, Setting]

    @property
    def usual(self) -> str:
        """The name of the first part."""
        return next(iter(self.parts))


def _spec(name: str, given: Mapping[str, Any]) -> TableSpec:
    settings: dict[str, Setting] = {}
    for key, one in given.get("settings", {}).items():
        words = one.pop("words", ())
        if words == "problems":
            words = [kind.replace(" ", "-") for kind in Problem]
        parts = tuple(one.pop("parts", ()))
        settings[key] = Setting(name=key, words=tuple(words), parts=parts, **one)
    return TableSpec(
        name=name,
        question=given["question"],
        parts=MappingProxyType(
            {
                part: Part(
                    table=name,
                    name=part,
                    function=one["from"],
                    shows=one["shows"],
                    is_of_pairs=one.get("is_of_pairs", False),
                    is_ranking=one.get("is_ranking", False),
                    is_apart=one.get("is_apart", False),
                    settings=MappingProxyType(
                        {k: s for k, s in settings.items() if not s.parts or part in s.parts}
                    ),
                )
                for part, one in given["parts"].items()
            }
        ),
        settings=MappingProxyType(settings),
    )


_FILE = Path(__file__).with_suffix(".toml")
TABLES: Mapping[str, TableSpec] = MappingProxyType(
    {
        name: _spec(name, given)
        for name, given in tomllib.loads(_FILE.read_text(encoding="utf-8")).items()
    }
)
"""The questions, in the order of help and reference."""


def part_of(name: str) -> Part:
    """The part of a name such as `trust` (its usual part) or `trust/dropped`.

    Raises:
        AnalysisError: no such table or part exists; the remedy names the nearest.
    """
    table, _, part = name.partition("/")
    if table not in TABLES:
        homes = [
            f"`fleetrank report show {one}` with `part={table}`"
            for one, spec in TABLES.items()
            if table in spec.parts
        ]
        hint = f"see {' or '.join(homes)}; " if homes else did_you_mean(table, TABLES)
        raise AnalysisError(f"no table '{table}'", f"{hint}there are {', '.join(TABLES)}")
    parts = TABLES[table].parts
    if (part or TABLES[table].usual) not in parts:
        raise AnalysisError(
            f"table '{table}' has no part '{part}'",
            f"{did_you_mean(part, parts)}it has {', '.join(parts)}",
        )
    return parts[part or TABLES[table].usual]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRequest:
    """A part of a table and the words of its settings; the other settings have their defaults.

    Attributes:
        name: as `part_of` takes it; a usual part has the name of its table.
        settings: name and word of each setting.
    """

    name: str
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def choices(self) -> tuple[tuple[str, str], ...]:
        """The part and the settings, as options."""
        _, _, part = self.name.partition("/")
        return ((("part", part),) if part else ()) + self.settings

    @property
    def table(self) -> str:
        """The name of the table."""
        return self.name.partition("/")[0]

    @property
    def file_stem(self) -> str:
        """Name of a file of this table without its ending: `trust-dropped`."""
        return "-".join([self.table, *(word for _, word in self.choices)])

    @property
    def words(self) -> str:
        """As `fleetrank report show` takes it: `trust --part dropped`."""
        return " ".join([self.table, *(f"--{name} {word}" for name, word in self.choices)])

    def selection(self, base: Selection) -> Selection:
        """The selection with these settings; a setting that it has already counts more."""
        if not self.settings:
            return base
        return replace(base, settings=(*self.settings, *base.settings))


def name_of(part: Part) -> str:
    """The name that `part_of` takes."""
    return part.table if part.name == TABLES[part.table].usual else f"{part.table}/{part.name}"


REQUESTS = (
    *(TableRequest(name=name_of(part)) for spec in TABLES.values() for part in spec.parts.values()),
    TableRequest(name="transfer", settings=(("along", "runtime"),)),
)
"""Every part with its defaults, and agreement between runtimes."""

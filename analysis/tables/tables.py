"""Makes the tables that `table_specs.toml` lists.

To add a part: write a function `(session) -> Table` in `analysis/statistics/` and name it there.
Start from `session.cells` or `session.panel`: they hold the selected values, and the notes that
every table shows.

To add a setting: describe it in the file, and read it in the function of the part with
`Setting.chosen` (words) or `stored.selection.setting` (numbers and texts). It is then an option of
`report show` and a name for `Selection.settings`.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.labels import published_names
from fleetrank.analysis.stored.name_patterns import fits_platform
from fleetrank.analysis.stored.named_precision import of_precisions
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.stored.unmatched import matched
from fleetrank.analysis.tables.formats import render
from fleetrank.analysis.tables.indexed_files import ExportedFile, write_indexed
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.entry_points import imported
from fleetrank.foundation.reading_beside import pause_between_steps
from fleetrank.foundation.small_file import read_small_text
from fleetrank.foundation.vocabulary import Problem
from fleetrank.foundation.wording import did_you_mean

if TYPE_CHECKING:
    from fleetrank.analysis.panel.session import Session


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
        file: `module:function` that checks the text of a file, of which the command line takes the
            path; empty for other settings.
    """

    name: str
    meaning: str
    parts: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    default: str = ""
    is_many: bool = False
    is_start: bool = False
    file: str = ""

    def text_of_file(self, path: Path) -> str:
        """The checked text of a file for this setting.

        Raises:
            BadFileError: it cannot be read, or is not such a file; the message names it.
        """
        text = read_small_text(path)
        imported(f"{_STATISTICS}.{self.file}")(text, str(path))
        return text

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
class TablePart:
    """One view of the answer of a table; the keys of `table_specs.toml` explain the fields."""

    table: str
    name: str
    function: str
    shows: str
    is_of_pairs: bool = False
    is_ranking: bool = False
    is_apart: bool = False
    columns: tuple[str, ...]
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
    parts: Mapping[str, TablePart]
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
                part: TablePart(
                    table=name,
                    name=part,
                    columns=tuple(given.get("columns", {}).get(part, "").split()),
                    settings=MappingProxyType(
                        {k: s for k, s in settings.items() if not s.parts or part in s.parts}
                    ),
                    **one,
                )
                for part, one in given["parts"].items()
            }
        ),
        settings=MappingProxyType(settings),
    )


_FILE = Path(__file__).with_name("table_specs.toml")
TABLES: Mapping[str, TableSpec] = MappingProxyType(
    {
        name: _spec(name, given)
        for name, given in tomllib.loads(_FILE.read_text(encoding="utf-8")).items()
    }
)
"""The questions, in the order of help and reference."""


def part_of(name: str) -> TablePart:
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


def name_of(part: TablePart) -> str:
    """The name that `part_of` takes."""
    return part.table if part.name == TABLES[part.table].usual else f"{part.table}/{part.name}"


REQUESTS = (
    *(TableRequest(name=name_of(part)) for spec in TABLES.values() for part in spec.parts.values()),
    TableRequest(name="transfer", settings=(("along", "runtime"),)),
)
"""Every part with its defaults, and agreement between runtimes."""


TableFunction = Callable[["Session"], Table]

_STATISTICS = "fleetrank.analysis.statistics"
"""The package of the modules that `TablePart.function` names, as `folder.module:name`."""


def make_table(
    name: str, frame: pl.LazyFrame, selection: Selection, *, results: Path | None = None
) -> Table:
    """Makes one table from every stored attempt, as `load.load_measurements` scans them.

    `name` is a table's, or that of one of its parts, such as `trust/dropped`.
    `results` is the folder that was scanned; tables of side tables are empty without it.
    Raises the errors of `session_table`, which is for several tables of the same rows.
    """
    from fleetrank.analysis.panel.session import Session

    return session_table(name, Session(frame, selection, results=results))


def session_table(name: str, session: "Session") -> Table:
    """Makes one table, once a session; tables of one session share its arrays.

    Raises the errors of `check_request` and of `checked_table`.
    """
    selection = check_request(name, session.frame, session.selection)
    return checked_table(name, session.asked(selection))


def checked_table(name: str, session: "Session") -> Table:
    """Makes one table of a session that `check_request` accepted, once a session.

    A table is a step: reading pauses before it while a measurement runs on this host.

    Raises:
        AnalysisError: a setting is far out of range.
        NoDataError: no row remains.
        NotComparableError: rows differ in a fact that must be equal for the comparison.
    """
    return session.once(_checked_table, name)


def _checked_table(session: "Session", name: str) -> Table:
    pause_between_steps(f"makes the table {name}")
    selection, part = session.selection, part_of(name)
    if not part.is_of_pairs and (selection.source, selection.source_tier) != (None, None):
        session = session.once(_of_source)
    try:
        table = _with_batches(function_of(part)(session), session)
    except (ValueError, OverflowError) as error:
        # Only a number or a text that the user gave can be out of range.
        free = {one.name for one in part.settings.values() if not one.words}
        if not any(given in free for given, _ in selection.settings):
            raise
        raise AnalysisError(
            f"{part.said} has no finite figures with these settings: {error}",
            "use values nearer to the defaults",
        ) from error
    if part.is_ranking:
        doubts = imported(f"{_STATISTICS}.measured.verdicts:doubts_sentence")(session)
        table = replace(table, notes=(*table.notes, *([doubts] if doubts else [])))
    return replace(table, devices=session.once(_published), columns=part.columns)


def _published(session: "Session") -> dict[str, str]:
    return published_names(session.frame)


def check_request(name: str, frame: pl.LazyFrame, selection: Selection) -> Selection:
    """Checks a table's name, settings and selection before any figure is computed.

    The selection that it returns has the whole names of models.

    Raises:
        AnalysisError: no such table, part or setting exists, or the part has no target; the remedy
            names the nearest.
        NoDataError: no row has a platform or model of a name.
    """
    part = part_of(name)
    part.refuse_wrong_settings(selection)
    if not part.is_apart:
        selection = matched(of_precisions(frame, selection), selection)
    if not part.is_of_pairs and (selection.target, selection.target_tier) != (None, None):
        raise AnalysisError(
            f"{part.said} shows single platforms and has no target",
            "choose platforms with source or source_tier",
        )
    return selection


def function_of(part: TablePart) -> TableFunction:
    """The function of a part; its module is imported here."""
    function: TableFunction = imported(f"{_STATISTICS}.{part.function}")
    return function


def _of_source(session: "Session") -> "Session":
    selection = session.selection
    return session.narrowed(fits_platform(selection.source, selection.source_tier))


SOURCE_BATCH, TARGET_BATCH = "batch", "target_batch"
"""Columns that state the batch on both sides, for a selection that compares unlike batches.

One batch, or several as `1, 1024`; null where a row is about neither.
"""


def _with_batches(table: Table, session: "Session") -> Table:
    """The table with the batches of each row's source and target, if unlike ones are compared.

    A row between platforms has their batches, one between tiers those of all selected platforms of
    the tier. A table without source and target, and every table of another selection, is unchanged.
    """
    columns = table.frame.columns
    if not session.selection.allow_unlike_batch or not {"source", "target"} <= set(columns):
        return table
    known = _batches(session)
    after = columns.index("target") + 1
    marked = table.frame.with_columns(
        pl.col(side).replace_strict(known, default=None, return_dtype=pl.String).alias(name)
        for side, name in (("source", SOURCE_BATCH), ("target", TARGET_BATCH))
    ).select(*columns[:after], SOURCE_BATCH, TARGET_BATCH, *columns[after:])
    return replace(
        table, frame=marked, explanation=(*table.explanation, *explained("unlike-batch"))
    )


def _batches(session: "Session") -> dict[str, str]:
    """The batches behind each name in a row: a platform's key, a tier or a runtime."""
    from fleetrank.analysis.panel.conditions import chosen_platforms

    platforms = session.panel.platforms
    chosen = sorted(
        {at for side in chosen_platforms(session.panel, session.selection) for at in side}
    )
    found: dict[str, set[int]] = {}
    for facts in platforms[chosen].iter_rows(named=True):
        for name in ("platform_key", "tier", "runtime"):
            batches = found.setdefault(str(facts[name]), set())
            if facts["batch"] is not None:
                batches.add(facts["batch"])
    return {name: ", ".join(map(str, sorted(some))) or "?" for name, some in found.items()}


SUFFIXES: Mapping[str, str] = MappingProxyType({"csv": "csv", "latex": "tex", "markdown": "md"})
"""Format to the suffix of its files."""


def index_name(form: str) -> str:
    """The index of the written files: names, sha256, titles, notes, missing tables with reasons.

    Each format has its own index, so several formats can share a folder.
    """
    return f"fleetrank-tables-{form}.json"


def export_tables(
    session: "Session",
    folder: Path,
    *,
    form: str,
    names: Sequence[str] = (),
    may_overwrite: bool = False,
) -> list[ExportedFile]:
    """Writes tables of a session into a folder as `write_indexed` does.

    Each part has its default settings: `REQUESTS`. One of single platforms has no target.

    Args:
        session: of rows with every origin.
        folder: created if it is missing.
        form: one of `SUFFIXES`.
        names: of tables, for all their parts, or of parts such as `trust/dropped`; empty for all.
        may_overwrite: also replace files that no export wrote.

    Raises:
        AnalysisError: a name or the format does not exist, or a foreign file would be replaced.
        StorageError: the folder cannot be written.
        NoDataError: no row matches the selection.
    """
    if form not in SUFFIXES:
        raise AnalysisError(f"no format '{form}'", f"there are {', '.join(SUFFIXES)}")
    requests = _requests(names)
    # A selection without data is an error: no folder is created.
    session_table("latency", session.asked(_of_one_side(session.selection)))
    return write_indexed(
        folder / index_name(form),
        [_content(request, session, form) for request in requests],
        may_overwrite=may_overwrite,
    )


def _requests(names: Sequence[str]) -> Sequence[TableRequest]:
    """Those of some tables and parts."""
    parts = {name: name_of(part_of(name)) for name in names}
    wanted = {part for name, part in parts.items() if "/" in name}
    whole = {name for name in names if "/" not in name}
    return [one for one in REQUESTS if not names or one.name in wanted or one.table in whole]


def _of_one_side(selection: Selection) -> Selection:
    return replace(selection, target=None, target_tier=None)


def _content(request: TableRequest, session: "Session", form: str) -> tuple[ExportedFile, bytes]:
    entry = ExportedFile(request=request.words)
    asked = request.selection(session.selection)
    if not part_of(request.name).is_of_pairs:
        asked = _of_one_side(asked)
    try:
        table = session_table(request.name, session.asked(asked))
    except AnalysisError as error:
        # With one device the choice of a proxy is not possible; the other tables are still written.
        return replace(entry, missing_because=str(error)), b""
    found = replace(
        entry,
        file=f"{request.file_stem}.{SUFFIXES[form]}",
        title=table.title,
        notes=table.notes,
        explanation=table.explanation,
    )
    return found, render(table, form).encode()

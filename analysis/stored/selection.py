"""What a user selects: rows, with `*` in names, and the settings of a table."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import overload

import polars as pl

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.stored.columns import DEFAULT_ORIGINS, EXCLUDED, SCHEMA
from fleetrank.foundation.argument_checks import (
    count_given,
    instance_of,
    number_of,
    pairs_of,
    text_of,
    texts_of,
)
from fleetrank.foundation.errors import (
    BadFileError,
    MissingFileError,
    count_of,
    did_you_mean,
    few_of,
    shortened,
)
from fleetrank.foundation.files import read_small_text
from fleetrank.foundation.inputs import IMAGE, Workload
from fleetrank.foundation.plain_data import without_checksum
from fleetrank.foundation.user_file import plain_number
from fleetrank.foundation.vocabulary import Precision

Named = str | Sequence[str] | None
"""One name, several, or `None` for all."""

MARGIN = 0.05
"""The only default margin, of `faster`, its page and tables, `ab`, `report compare` and tests.

It separates equal from undecided; it decides an order only where the noise is not known. Users do
not notice a smaller difference, and two processes of one model differ by as much.
"""
CHANGE_ALPHA = 0.05
"""Accepted share of wrong claims among the changes with one kind of verdict."""

ANY_PRECISION = "any"
"""Selects every precision, each of a model as a separate model, such as `resnet18:int8`."""

PRECISION_OF_KEY = r"^((?:[^/]+/){4})[^/]+"
"""The precision in a platform key, behind the four parts that are kept."""
PRECISION_WORD = rf"({'|'.join(Precision)}|w\d+a\d+\w*)"
"""A precision in the name of a model; the last form is of published files."""
_MAX_EXPRESSION = 2000
"""Characters of patterns in one regular expression; Polars refuses one that compiles to 10 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The selected rows; `None` selects all.

    Attributes:
        sweep: id of one sweep, or of several; the newest of each model and platform among them.
        source, target: a device, or a platform key in which `*` matches any text. A table of single
            platforms shows those that match `source`; a target is an error there.
        model: a name in which `*` matches any text, or several, of which a model fits one. `n3`
            is `lab:n3` where no model is named `n3` and only one ends so.
        precision: one precision, or `ANY_PRECISION`.
        max_memory_mib: on a platform, only models with a known peak memory up to this, in MiB; it
            limits cells, not the lists of attempts.
        workload: what one inference does, such as `decode@512`; a table is about one. `None` is
            `image`, or the only workload of the selected rows.
        where: further columns of text, each with the value that its rows must have.
        allow_unlike_batch: also compare tiers over pairs of platforms with different batches;
            not by default, because a ranking can change with the batch, and published rows of
            GPUs have batch 256 and more, those of CPUs 1.
        allow_unlike_border: also rank files that take floats with files that take integers; not by
            default, because the time of only one contains quantising.
        seed: of every random step: bootstrap, permutation, null.
        settings: further settings of a single table, see `TableSpec`; read by `setting`.
        notes: how names were understood; each table with figures of cells has them.

    Raises:
        AnalysisError: `sweep` or `model` is an empty list, `where` names no column of text, or
            `workload` is not the text of one.
        ArgumentError: a field has the wrong type.
    """

    sweep: Named = None
    source: str | None = None
    target: str | None = None
    source_tier: str | None = None
    target_tier: str | None = None
    runtime: str | None = None
    precision: str | None = None
    family: str | None = None
    model: Named = None
    max_memory_mib: float | None = None
    where: tuple[tuple[str, str], ...] = ()
    workload: str | None = None
    origins: tuple[str, ...] = DEFAULT_ORIGINS
    allow_unlike_batch: bool = False
    allow_unlike_border: bool = False
    seed: int = 0
    settings: tuple[tuple[str, float | str], ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Checks the fields; keeps names as tuples, so that equal selections compare as equal."""
        object.__setattr__(self, "sweep", names_of(self.sweep) or None)
        object.__setattr__(self, "model", names_of(self.model) or None)
        object.__setattr__(self, "origins", texts_of("origins", self.origins))
        _check_types(self)

    @property
    def sweeps(self) -> tuple[str, ...]:
        """The ids of the selected sweeps; empty selects all."""
        return names_of(self.sweep)

    @property
    def models(self) -> tuple[str, ...]:
        """The names and patterns of the selected models; empty selects all."""
        return names_of(self.model)

    @property
    def rows(self) -> tuple[object, ...]:
        """The fields that decide about rows and panel: equal ones give the same of a frame."""
        return (
            self.sweep, self.runtime, self.precision, self.family, self.model, self.where,
            self.workload, self.origins, self.max_memory_mib, self.allow_unlike_batch,
            self.allow_unlike_border,
        )  # fmt: skip


_TEXTS = (
    "source",
    "target",
    "source_tier",
    "target_tier",
    "runtime",
    "precision",
    "family",
    "workload",
)


def _check_types(selection: Selection) -> None:
    for name in _TEXTS:
        if (given := getattr(selection, name)) is not None:
            text_of(name, given)
    if selection.max_memory_mib is not None:
        number_of("max_memory_mib", selection.max_memory_mib, above=-1, most=math.inf)
    count_given("seed", selection.seed, least=0, most=2**63 - 1)
    instance_of("allow_unlike_batch", selection.allow_unlike_batch, bool)
    instance_of("allow_unlike_border", selection.allow_unlike_border, bool)
    _check_workload(selection.workload)
    pairs_of("settings", selection.settings)
    pairs_of("where", selection.where)
    for name, value in selection.where:
        text_of(f"the value of {name}", value)
        if SCHEMA.get(name) != pl.String:
            known = [column for column, dtype in SCHEMA.items() if dtype == pl.String]
            raise AnalysisError(
                f"no column of text is named '{name}'",
                f"{did_you_mean(name, known)}the reference lists the columns",
            )


def _check_workload(given: str | None) -> None:
    try:
        Workload.parse(str(IMAGE) if given is None else given)
    except ValueError as error:
        raise AnalysisError(f"'{shortened(str(given))}' is not a workload", str(error)) from error


def names_of(given: Named) -> tuple[str, ...]:
    """The names, each once, in their order; empty for `None`.

    Raises:
        AnalysisError: the list is empty: a program that found no name must not select all rows.
        ArgumentError: it is neither a name nor a list of names.
    """
    if given is None:
        return ()
    if names := tuple(dict.fromkeys((given,) if isinstance(given, str) else _names(given))):
        return names
    raise AnalysisError("the list of names is empty", "give a name, or None to select all")


def _names(given: Sequence[str]) -> tuple[str, ...]:
    return texts_of("the selection of names", given)


@overload
def setting(selection: Selection, name: str, default: float) -> float: ...
@overload
def setting(selection: Selection, name: str, default: str) -> str: ...
def setting(selection: Selection, name: str, default: float | str) -> float | str:
    """The user's value, with the type of the default, or else the default; the last value counts.

    Raises:
        AnalysisError: the value must be a number but is not.
    """
    given = dict(selection.settings).get(name, default)
    if isinstance(default, str):
        return str(given)
    try:
        return plain_number(str(given))
    except ValueError as error:
        raise AnalysisError(
            f"{name}={given} is not a number", f"such as `set {name}={default:g}`"
        ) from error


def margin_of(selection: Selection, default: float) -> float:
    """The largest difference of no interest: the user's, else the default.

    Raises:
        AnalysisError: it is not above 0 and below 10.
    """
    margin = setting(selection, "margin", default)
    if not 0 < margin < 10:
        raise AnalysisError(f"margin {margin:g} is out of range", "such as `set margin=0.05`")
    return margin


def matches(column: str | pl.Expr, *patterns: str) -> pl.Expr:
    """Whether a text matches one of the patterns, in which `*` matches any text."""
    text = pl.col(column) if isinstance(column, str) else column
    names = [pattern for pattern in patterns if "*" not in pattern]
    found = text.is_in(names)
    for expression in _expressions([pattern for pattern in patterns if "*" in pattern]):
        found = found | text.str.contains(expression)
    return found


_PRECISE = re.compile(rf"(?<=.):{PRECISION_WORD}(?=$| \()")
"""Sizes or weights may follow in the name of a model."""


def split_precision(name: str) -> tuple[str, str | None]:
    """The name of a model without its precision, and the precision; `None` without one."""
    found = _PRECISE.search(name)
    return (_PRECISE.sub("", name), found[1]) if found else (name, None)


def has_precision(name: str, models: Iterable[str]) -> bool:
    """Whether a name ends with a precision, and no model was published under a name that does."""
    is_published = any(f":{one}".endswith(f":{name}") for one in models)
    return split_precision(name)[1] is not None and not is_published


def place_of(name: str, models: Sequence[str], *, is_precise: bool) -> int | None:
    """The model that a name stands for; `None` without one.

    It has exactly this name, or is the only one with it before its precision; or it is the only one
    with a start before it: `n3` is `lab:n3`.

    Raises:
        AnalysisError: the name stands for several.
    """
    plain = [split_precision(one)[0] if is_precise else one for one in models]
    for known, start in ((models, ""), (plain, ""), (models, ":"), (plain, ":")):
        end = f"{start}{name}"
        fits = [at for at, one in enumerate(known) if one == name or (start and one.endswith(end))]
        if len(fits) > 1:
            what = "is the end of several models" if start else "was measured in several precisions"
            alike = ", ".join(sorted(models[at] for at in fits))
            raise AnalysisError(f"'{name}' {what}", f"name one: {alike}")
        if fits:
            return fits[0]
    return None


def fits_model(*patterns: str) -> pl.Expr:
    """Whether a model's name fits one of the patterns, or its name before the precision.

    Of rows that are named by precision only: another model may be named `net:fp16` as published.
    """
    plain = pl.col("model").str.replace(f":{PRECISION_WORD}$", "")
    is_named = pl.col("precision").eq_missing(ANY_PRECISION)
    return matches("model", *patterns) | (is_named & matches(plain, *patterns))


def _expressions(patterns: Sequence[str]) -> Iterator[str]:
    """The patterns as a few regular expressions of limited length."""
    some: list[str] = []
    for pattern in patterns:
        if some and sum(map(len, some)) + len(pattern) > _MAX_EXPRESSION:
            yield "|".join(map(regex_of, some))
            some = []
        some.append(pattern)
    if some:
        yield "|".join(map(regex_of, some))


_SAID = re.compile(r"batch (?P<b>\d+)|(?P<t>\d+) threads?")


def _is_named(pattern: str) -> pl.Expr:
    names = ("platform_key", "device", "device_model")
    named = pl.any_horizontal(matches(name, pattern) for name in names)
    return named.fill_null(value=False)


def _has_part(text: str) -> pl.Expr:
    """Whether a platform's key has a part, by the words of a label: `2 threads` is `t2` there."""
    said = _SAID.fullmatch(text)
    part = f"{said.lastgroup}{said[said.lastgroup or 0]}" if said else text
    return pl.col("platform_key").str.contains(f"/{part}/", literal=True)


def fits_platform(pattern: str | None, tier: str | None) -> pl.Expr:
    """Whether a platform's key, device, device model or label matches the pattern.

    A label is as tables show it, such as `Samsung Galaxy S24, onnx, 2 threads`. The tier is equal.
    """
    fits = pl.lit(value=True)
    if pattern is not None:
        first, *parts = pattern.split(", ")
        is_label = pl.all_horizontal(_is_named(first) | _has_part(first), *map(_has_part, parts))
        fits = fits & (_is_named(pattern) | (is_label if parts else pl.lit(value=False)))
    if tier is not None:
        fits = fits & (pl.col("tier") == tier)
    return fits


def fits_text(pattern: str, text: str) -> bool:
    """Whether a text matches the pattern; `fnmatch` takes steps that grow with the lengths."""
    return fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]"))


def regex_of(pattern: str) -> str:
    """The pattern as a regular expression; Polars and DuckDB both match it in linear time."""
    parts = (pl.escape_regex(part) for part in pattern.split("*"))
    return f"(?s)^{'.*'.join(parts)}$"


# Which workload a table is about: figures of two workloads are never compared.

WORKLOAD = "workload"
_NAMED = 8
"""A sentence names at most this many workloads."""


def known_workload() -> pl.Expr:
    """The workload of a row; `image` where none is stored."""
    return pl.col(WORKLOAD).fill_null(str(IMAGE))


def workloads_of(rows: pl.LazyFrame) -> tuple[str, ...]:
    """The workloads of some rows, in the order of lists: images, prompts, steps by length."""
    known = rows.select(known_workload().unique()).collect()[WORKLOAD]
    return tuple(sorted(known, key=_order))


def chosen_workload(rows: pl.LazyFrame, wanted: str | None) -> str:
    """The wanted workload; without one `image`, or the only one of the rows.

    Raises:
        AnalysisError: no workload is wanted, and the rows have several, not of images.
    """
    if wanted is not None:
        return wanted
    known = workloads_of(rows)
    if str(IMAGE) in known or not known:
        return str(IMAGE)
    if len(known) > 1:
        raise AnalysisError(
            f"the results have {len(known)} workloads, and a table is about one: {named(known)}",
            f"choose one, such as `workload={known[0]}`",
        )
    return known[0]


def refuse_absent_workload(rows: pl.LazyFrame, wanted: str | None) -> None:
    """Compares a wanted workload with all rows, also failed ones.

    Raises:
        NoDataError: no row has it; the message names the workloads that exist.
    """
    if wanted is None or wanted in (known := workloads_of(rows)):
        return
    raise NoDataError(
        f"no row has the workload '{wanted}'",
        f"{did_you_mean(wanted, known)}the results have {named(known) or 'none'}",
    )


def other_workloads_note(rows: pl.LazyFrame, chosen: str) -> tuple[str, ...]:
    """A note that further workloads of the selected rows are not in a table."""
    others = [name for name in workloads_of(rows) if name != chosen]
    if not others:
        return ()
    return (f"Not shown: {named(others)}; choose one with `workload={others[0]}`.",)


def named(workloads: tuple[str, ...] | list[str]) -> str:
    """The first few workloads, as a list for a sentence."""
    return few_of(workloads, _NAMED)


def _order(text: str) -> tuple[tuple[int, int, int, int, str], str]:
    """Of a text that a newer version wrote: after all others."""
    try:
        return Workload.parse(text).sort_key, text
    except ValueError:
        return (99, 0, 0, 0, ""), text


# What the latency figure of a stored row is: a median, a mean or a minimum.
#
# Rows that were stored before the column existed have it only where other facts leave no doubt.

STATISTIC = "statistic"
KNOWN_STATISTIC = """
    CASE
    WHEN statistic IS NOT NULL THEN statistic
    WHEN latency_p50_ns IS NULL THEN NULL
    WHEN sample_kind = 'throughput_derived' THEN 'mean'
    WHEN sample_kind = 'vendor' AND source = 'qai-hub' THEN 'minimum'
    WHEN origin = 'imported' THEN NULL
    WHEN sample_kind = 'per_inference' THEN 'median'
    WHEN sample_kind != 'tool_summary' THEN NULL
    WHEN runtime_settings LIKE '%"summary_statistic":"median"%' THEN 'median'
    WHEN runtime_settings LIKE '%"summary_statistic":"mean"%' THEN 'mean'
    WHEN runtime = 'onnx' THEN 'median'
    END
"""
"""SQL that Polars and DuckDB both read, so that tables and queries cannot differ.

A rate is the inverse of a mean. AI Hub reports the shortest time that it saw (its documentation,
"How it works", Inference). fleetrank takes the median of samples; `benchmark_model` wrote which
statistic it printed. What a user's own file holds is not known: null.
"""


def with_statistic(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Stored rows, with `statistic` filled in where it is certain."""
    return rows.with_columns(pl.sql_expr(KNOWN_STATISTIC).alias(STATISTIC))


def are_unlike(source: str | None, target: str | None) -> bool:
    """Whether two statistics are known to differ; one that is not stated does not differ."""
    return None not in (source, target) and source != target


# The file of rows that a person excludes, and how it is applied to the rows.
#
# The stored rows do not change. A reader gets one more column, `excluded`; a row counts if it is
# null.

FILE = "exclusions.json"
"""In the results folder."""
COPY = f"{FILE}.copy"
"""Beside it: without a copy, no user would notice that the file was deleted."""
MAX_REASON = 200
"""Maximum letters of a reason: a note under every table shows it."""
MAX_NAME = 500
"""Maximum letters of a sweep's id or a pattern; no platform key is longer."""
MAX_EXCLUSIONS = 1000
"""Each exclusion costs a comparison per row; with more, exclude the whole sweep instead."""
CELL_WORD = " on "
"""Between model and platform in a pattern; a platform key has no space."""
_MAX_FILE_BYTES = 4 << 20
"""Size of that many exclusions of maximum length, at four bytes a letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """One decision to exclude rows.

    Attributes:
        number: from 1; never reused.
        sweep_id: the sweep does not have to exist (any more).
        pattern: a model's name, a workload, a platform key, `MODEL on PLATFORM` or
            `MODEL WORKLOAD on PLATFORM`; `*` matches any text. `None` is the whole sweep.
        reason: one line.
        excluded_utc: when it was decided, ISO 8601.
    """

    number: int
    sweep_id: str
    pattern: str | None
    reason: str
    excluded_utc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusions:
    """All active exclusions by number, and the next free number."""

    next_number: int = 1
    entries: tuple[Exclusion, ...] = ()


def read_exclusions(results: Path) -> Exclusions:
    """What `<workspace>/results/exclusions.json` contains; without it and its copy: no exclusion.

    Raises:
        AnalysisError: it was deleted, cannot be read or holds no valid record. The caller must not
            show figures then: excluded rows would count, and a reader could not see it.
    """
    found = _read(results / FILE)
    if found is not None:
        return found
    kept = _read(results / COPY) or Exclusions()
    if kept.entries:
        raise AnalysisError(
            f"{results / FILE} was deleted; it had {count_of(len(kept.entries), 'exclusion')}",
            f"copy {results / COPY} to {FILE}; or delete it too, and all rows count again",
        )
    return Exclusions()


def _read(path: Path) -> Exclusions | None:
    try:
        if (text := _content(path)) is None:
            return None
        content = json.loads(text)
        return _parse(without_checksum(content) if isinstance(content, dict) else content)
    except (BadFileError, ValueError, RecursionError) as error:
        # Only the first line: a hostile file can control the text of a parser's message.
        text = getattr(error, "message", str(error)).removeprefix(f"{path} ")
        said = text.partition("\n")[0][:MAX_REASON]
        raise AnalysisError(
            f"{path} is not a record of exclusions: {said}",
            f"restore it, {COPY} beside it is its copy; if you edited it, delete its entry "
            "'checksum'; or delete both files, and all rows count again",
        ) from error


def excluded_column(exclusions: Exclusions) -> pl.Expr:
    """The column `excluded`: the reason of the first exclusion that covers a row, or null."""
    reasons = [pl.when(covers(one)).then(pl.lit(one.reason)) for one in exclusions.entries]
    none = pl.lit(None, dtype=EXCLUDED.dtype)
    return pl.coalesce(*reasons, none).alias(EXCLUDED.name)


def covers(exclusion: Exclusion) -> pl.Expr:
    """Whether the exclusion covers a row; never null."""
    is_meant = pl.col("sweep_id") == exclusion.sweep_id
    if exclusion.pattern is not None:
        is_meant &= fits(exclusion.pattern)
    return is_meant.fill_null(value=False)


def fits(pattern: str) -> pl.Expr:
    """Whether model, workload or platform of a row match the pattern, or all of `M W on P`."""
    return pl.any_horizontal(
        pl.all_horizontal(_matches(column, part) for column, part in meaning.items())
        for meaning in meanings(pattern)
    )


def _matches(column: str, pattern: str) -> pl.Expr:
    return matches(known_workload() if column == WORKLOAD else column, pattern)


def meanings(pattern: str) -> tuple[dict[str, str], ...]:
    """What a pattern can mean: columns that must match together; one of the meanings is enough."""
    model, word, platform = pattern.rpartition(CELL_WORD)
    cells = [of_model | {"platform_key": platform} for of_model in _models_of(model) if word]
    return (*_models_of(pattern), {WORKLOAD: pattern}, {"platform_key": pattern}, *cells)


def _models_of(pattern: str) -> tuple[dict[str, str], ...]:
    """A model, and `MODEL WORKLOAD` where there are two words."""
    model, word, workload = pattern.rpartition(" ")
    return ({"model": pattern}, *([{"model": model, WORKLOAD: workload}] if word else []))


def cell_pattern(model: str, platform_key: str, workload: str) -> str:
    """The pattern of one model on one platform; only a workload with tokens is named."""
    what = model if workload == str(IMAGE) else f"{model} {workload}"
    return f"{what}{CELL_WORD}{platform_key}"


def not_excluded(frame: pl.LazyFrame) -> pl.LazyFrame:
    """The rows that are not excluded."""
    return frame.filter(pl.col(EXCLUDED.name).is_null())


def exclusion_notes(frame: pl.LazyFrame) -> tuple[str, ...]:
    """The notes of a table about excluded rows, one note per reason."""
    left_out = (
        frame.filter(pl.col(EXCLUDED.name).is_not_null())
        .group_by(EXCLUDED.name)
        .agg(pl.len(), pl.col("sweep_id").n_unique())
        .sort(EXCLUDED.name)
        .collect()
    )
    return tuple(
        f"Dropped: {count_of(rows, 'row')} of {count_of(sweeps, 'sweep')} excluded by hand: "
        f"{reason.rstrip('.')}."
        for reason, rows, sweeps in left_out.iter_rows()
    )


def is_reason(text: str) -> bool:
    """Whether a text can be a reason: one trimmed, printable line that is not too long."""
    return 0 < len(text) <= MAX_REASON and text == text.strip() and text.isprintable()


def _content(path: Path) -> str | None:
    try:
        return read_small_text(path, _MAX_FILE_BYTES)
    except MissingFileError:
        return None


def _parse(content: object) -> Exclusions:
    raw = content.get("exclusions") if isinstance(content, dict) else None
    if not isinstance(raw, list) or not isinstance(content, dict):
        raise ValueError("it lacks the list 'exclusions'")  # noqa: TRY004 - a damaged file
    if len(raw) > MAX_EXCLUSIONS:
        raise ValueError(f"more than {MAX_EXCLUSIONS} exclusions")
    entries = sorted((_entry(one) for one in raw), key=lambda one: one.number)
    numbers = [one.number for one in entries]
    next_number = _number(content, "next_number")
    if len(set(numbers)) < len(numbers) or next_number <= max(numbers, default=0):
        raise ValueError("one number names two exclusions")
    return Exclusions(next_number=next_number, entries=tuple(entries))


def _entry(raw: object) -> Exclusion:
    if not isinstance(raw, dict):
        raise ValueError("an exclusion is not an object")  # noqa: TRY004 - a damaged file
    reason = _text(raw, "reason")
    if not is_reason(reason):
        raise ValueError("a reason is empty, too long or not one line")
    stamp = _text(raw, "excluded_utc")
    datetime.fromisoformat(stamp)
    return Exclusion(
        number=_number(raw, "number"),
        sweep_id=_text(raw, "sweep_id"),
        pattern=None if raw.get("pattern") is None else _text(raw, "pattern"),
        reason=reason,
        excluded_utc=stamp,
    )


def _text(raw: dict[object, object], name: str) -> str:
    text = raw.get(name)
    # JSON allows half a surrogate pair; a text column does not.
    if not isinstance(text, str) or len(text) > MAX_NAME or not text.isprintable():
        raise ValueError(f"'{name}' is missing, too long or not one line")
    return text


def _number(raw: dict[object, object], name: str) -> int:
    number = raw.get(name)
    if type(number) is not int or not 0 < number < 2**63:
        raise ValueError(f"'{name}' is not a number from 1 on")
    return number

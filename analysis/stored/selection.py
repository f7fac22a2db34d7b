"""What a user selects: rows, with `*` in names, and the settings of a table."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.columns import DEFAULT_ORIGINS, SCHEMA
from fleetrank.foundation.arguments.argument_checks import (
    count_given,
    instance_of,
    number_of,
    pairs_of,
    text_of,
    texts_of,
)
from fleetrank.foundation.inputs.workload import IMAGE, Workload
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.wording import did_you_mean

Named = str | Sequence[str] | None
"""One name, several, or `None` for all."""

_MAX_EXPRESSION = 2000
"""Characters of patterns in one regular expression; Polars refuses one that compiles to 10 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The selected rows; `None` selects all.

    Attributes:
        sweep: id of one sweep, or of several; the newest of each model and platform among them.
        source, target: a device, or a platform key in which `*` matches any text. A table of single
            platforms shows those that match `source`; a target is an error there.
        model: a name in which `*` matches any text, or several, of which a model fits one.
        max_memory_mib: on a platform, only models with a known peak memory up to this, in MiB; it
            limits cells, not the lists of attempts.
        workload: what one inference does, such as `decode@512`; a table is about one. `None` is
            `image`, or the only workload of the selected rows.
        where: further columns of text, each with the value that its rows must have.
        allow_unlike_batch: also compare tiers over pairs of platforms with different batches;
            not by default, because a ranking can change with the batch, and published rows of
            GPUs have batch 256 and more, those of CPUs 1.
        seed: of every random step: bootstrap, permutation, null.
        settings: further settings of a single table, see `TableSpec`; read by `setting`.

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
    seed: int = 0
    settings: tuple[tuple[str, float | str], ...] = ()

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
        value = float(given)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise AnalysisError(f"{name}={given} is not a number", f"such as `set {name}={default:g}`")
    return value


def matches(column: str | pl.Expr, *patterns: str) -> pl.Expr:
    """Whether a text matches one of the patterns, in which `*` matches any text."""
    text = pl.col(column) if isinstance(column, str) else column
    names = [pattern for pattern in patterns if "*" not in pattern]
    found = text.is_in(names)
    for expression in _expressions([pattern for pattern in patterns if "*" in pattern]):
        found = found | text.str.contains(expression)
    return found


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


def fits_platform(pattern: str | None, tier: str | None) -> pl.Expr:
    """Whether a platform's key or device matches the pattern, and its tier equals the tier."""
    fits = pl.lit(value=True)
    if pattern is not None:
        fits = fits & (matches("platform_key", pattern) | matches("device", pattern))
    if tier is not None:
        fits = fits & (pl.col("tier") == tier)
    return fits


def regex_of(pattern: str) -> str:
    """The pattern as a regular expression; Polars and DuckDB both match it in linear time."""
    parts = (pl.escape_regex(part) for part in pattern.split("*"))
    return f"(?s)^{'.*'.join(parts)}$"

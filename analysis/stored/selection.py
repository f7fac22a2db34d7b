"""What a user selects: rows, with `*` in names, and the settings of a table."""

import math
from dataclasses import dataclass
from typing import overload

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.columns import DEFAULT_ORIGINS


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The selected rows; `None` selects all.

    Attributes:
        sweep: id of one sweep; otherwise the newest of each model and platform.
        source, target: a device, or a platform key in which `*` matches any text. A table of single
            platforms shows those that match `source`; a target is an error there.
        model: its name, in which `*` matches any text.
        where: further columns of text, each with the value that its rows must have.
        seed: of every random step: bootstrap, permutation, null.
        settings: further settings of a single table, see `TableSpec`; read by `setting`.
    """

    sweep: str | None = None
    source: str | None = None
    target: str | None = None
    source_tier: str | None = None
    target_tier: str | None = None
    runtime: str | None = None
    precision: str | None = None
    family: str | None = None
    model: str | None = None
    where: tuple[tuple[str, str], ...] = ()
    origins: tuple[str, ...] = DEFAULT_ORIGINS
    seed: int = 0
    settings: tuple[tuple[str, float | str], ...] = ()

    @property
    def rows(self) -> tuple[object, ...]:
        """The fields that select rows: equal ones select the same rows of a frame."""
        return (
            self.sweep, self.runtime, self.precision, self.family, self.model, self.where,
            self.origins,
        )  # fmt: skip


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
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise AnalysisError(f"{name}={given} is not a number", f"such as --set {name}={default:g}")
    return value


def matches(column: str, pattern: str) -> pl.Expr:
    """Whether a text matches the pattern, in which `*` matches any text."""
    if "*" not in pattern:
        return pl.col(column) == pattern
    return pl.col(column).str.contains(regex_of(pattern))


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

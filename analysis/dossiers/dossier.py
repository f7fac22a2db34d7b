"""The contents of a page about one device, model or sweep: tables and figures over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.stored.exclusions import exclusion_notes, not_excluded
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.values import value_text
from fleetrank.foundation.wording import count_of, nearest

MAX_POINTS = 400
"""More points do not change a line on a screen."""
MAX_ROWS = 500
"""Maximum rows of a table; SQL can select more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One figure over time; missing points and empty series are left out."""

    title: str
    unit: str
    points: tuple[tuple[datetime, float], ...]

    def as_json(self) -> dict[str, object]:
        """Times in ISO form, for programs and for drawing."""
        points = [[time.isoformat(), value] for time, value in self.points]
        return {"title": self.title, "unit": self.unit, "points": points}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dossier:
    """Tables in the order to show, and figures over time."""

    tables: tuple[Table, ...]
    series: tuple[Series, ...] = ()


def rows_about(frame: pl.LazyFrame, column: str, name: str) -> pl.DataFrame:
    """All attempts about one thing, without samples, oldest first; excluded ones are included.

    Raises:
        NoDataError: no row has this name; the remedy names the nearest.
    """
    found = frame.filter(pl.col(column) == name).drop("samples_ns", "device_samples_ns").collect()
    if found.is_empty():
        known = frame.select(pl.col(column).unique()).collect()[column].drop_nulls().to_list()
        near = nearest(name, known)
        raise NoDataError(
            f"no row has the {column.removesuffix('_id')} '{name}'",
            f"did you mean '{near}'?"
            if near
            else f"{count_of(len(known), 'other is', 'others are')} known",
        )
    return found.sort("started_utc", nulls_last=False)


def counted(rows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The rows that are not excluded by hand, and notes on the others."""
    return not_excluded(rows.lazy()).collect(), exclusion_notes(rows.lazy())


def newest_facts(rows: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """`fact` and `value` as text: the last known value of each fact; unknown facts are left out."""
    pairs = []
    for name in names:
        known = rows[name].drop_nulls()
        if len(known):
            pairs.append({"fact": name, "value": value_text(known[-1])})
    return pl.DataFrame(pairs, schema={"fact": pl.String, "value": pl.String})


def series_of(rows: pl.DataFrame, column: str, title: str, unit: str) -> Series:
    """A column over the start of its attempt, thinned to `MAX_POINTS` evenly chosen rows."""
    known = rows.select("started_utc", pl.col(column).cast(pl.Float64)).drop_nulls()
    step = max(1, -(-known.height // MAX_POINTS))
    return Series(title=title, unit=unit, points=tuple(known.gather_every(step).iter_rows()))


def failures_table(rows: pl.DataFrame) -> Table:
    """The last failed attempts, newest first."""
    failed = rows.filter(pl.col("status") != "ok")
    shown = failed.reverse().select(
        "started_utc", "sweep_id", "model", "workload", "platform_key", "repeat", "attempt",
        "error_kind", "error_stage", "error_message", "error_remedy",
    )  # fmt: skip
    hidden = shown.height - MAX_ROWS
    notes = (f"{hidden} older ones are not listed.",) if hidden > 0 else ()
    return Table(title="Failed attempts", frame=shown.head(MAX_ROWS), notes=notes)

"""Columns of text, and how they fit a width."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from fleetrank.analysis.tables.values import MISSING, heading, time_text, value_text
from fleetrank.foundation.wording import count_of

PIPE_WIDTH = 200
"""Letters of a line of prose in a pipe: a log shows it."""
SENTENCE = 100
"""A longer text is a sentence, and less wanted than a figure: reasons and platforms are shorter."""
KEYS = frozenset({
    "level", "measure", "figure", "statistic", "kind", "form", "over", "goal", "scope", "component",
    "model", "model_a", "model_b", "reference", "family", "workload", "strategy", "sizes", "tokens",
    "value", "plan",
    "source", "target", "platform_key", "platform", "platform_a", "platform_b", "tier", "device",
    "device_model", "runtime", "precision", "batch", "target_batch", "sweep_id", "repeat",
    "attempt",
})  # fmt: skip
"""Columns that say what a row is about; they are never hidden, as is the first of a table."""
REASON = "reason"
"""The column that says why figures of a row are missing."""
ANSWER = "answer"
"""The column with what a table says: it is hidden after other sentences and before figures."""
_MAX_REASONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Columns of texts as people read them, and which of them hold numbers."""

    columns: Mapping[str, list[str]]
    numbers: frozenset[str]

    @property
    def lines(self) -> list[tuple[str, ...]]:
        """The names of the columns, and the texts row by row."""
        return [tuple(self.columns), *zip(*self.columns.values(), strict=True)]


def grid_of_rows(
    rows: Sequence[Mapping[str, object]], *, has_headings: bool = False, is_grouped: bool = False
) -> Grid:
    """The texts of rows with equal keys.

    Args:
        rows: JSON values.
        has_headings: the headings name the zone, so a moment is shown to the second without one.
        is_grouped: as of `value_text`.
    """
    names = list(rows[0]) if rows else []
    is_number = (type(None), int, float)

    def text(name: str, value: object) -> str:
        if has_headings and name.endswith("_utc") and isinstance(value, str):
            with suppress(ValueError):
                return time_text(datetime.fromisoformat(value)).removesuffix(" UTC")
        return value_text(value, is_grouped=is_grouped)

    return Grid(
        columns={name: [text(name, row.get(name)) for row in rows] for name in names},
        numbers=frozenset(
            name for name in names if all(type(row.get(name)) in is_number for row in rows)
        ),
    )


def lines_of(grid: Grid, *, has_rule: bool = False) -> list[str]:
    """The columns as aligned lines, the first with their names."""
    widths = {name: max(len(name), *map(len, cells), 0) for name, cells in grid.columns.items()}
    align = [str.rjust if name in grid.numbers else str.ljust for name in grid.columns]
    names, *rows = grid.lines
    rule = ["-" * width for width in widths.values()]
    return [
        "  ".join(
            side(text, width) for side, text, width in zip(align, row, widths.values(), strict=True)
        ).rstrip()
        for row in (names, *([rule] if has_rule else []), *rows)
    ]


MOST_COLUMNS = 8
"""Of a table that people read; more do not fit a terminal, and few of them are figures."""
_INTERVAL = "interval"


def brief_columns(
    columns: Mapping[str, Sequence[object]], wanted: Sequence[str] = ()
) -> tuple[str, ...]:
    """The columns that people see: equal ones, which the heading has, and at most `MOST_COLUMNS`.

    Args:
        columns: name to values.
        wanted: the names to choose from, in order; empty for all but the reasons.
    """
    has_rows = any(map(len, columns.values()))
    known = [
        name
        for name in wanted or [name for name in columns if name != REASON]
        if name in columns
        and (name in KEYS or not has_rows or any(one is not None for one in columns[name]))
    ]
    equal = {name for name in known if is_shared(columns[name])}
    keys = [name for name in known if name in KEYS and name not in equal]
    others = [name for name in known if name not in KEYS and name not in equal]
    kept = {*equal, *keys, *others[: max(0, MOST_COLUMNS - len(keys))]}
    return tuple(name for name in known if name in kept)


def is_shared(values: Sequence[object]) -> bool:
    """Whether two rows or more have one value."""
    return len(values) > 1 and all(one == values[0] for one in values)


def without_shared(
    columns: Mapping[str, list[str]],
) -> tuple[Mapping[str, list[str]], str | None]:
    """The columns that vary, and a line on the others; `None` without any."""
    shared = {name: cells[0] for name, cells in columns.items() if is_shared(cells)}
    said = [f"{heading(name)}: {text}" for name, text in shared.items() if text != MISSING]
    shown = {name: cells for name, cells in columns.items() if name not in shared}
    return shown, f"In these rows: {'; '.join(said)}" if said else None


def with_intervals(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """The frame with a column of texts such as `0.54 to 0.95` for each name of an interval.

    `interval` is of `low` and `high`, `ratio_interval` of `ratio_low` and `ratio_high`.
    """
    for name in names:
        ends = [name.replace(_INTERVAL, end) for end in _ENDS]
        if name not in frame.columns and set(ends) <= set(frame.columns):
            pairs = zip(*(column_texts(frame, end) for end in ends), strict=True)
            texts = [None if MISSING in pair else " to ".join(pair) for pair in pairs]
            frame = frame.with_columns(pl.Series(name, texts, dtype=pl.String))
    return frame


def without_figures(frame: pl.DataFrame) -> pl.Series:
    """Which rows have only the reason why their figures are missing; none if all are so."""
    figures = [name for name, dtype in frame.schema.items() if dtype.is_float()]
    if REASON not in frame.columns or not figures:
        return frame.select(pl.repeat(value=False, n=pl.len())).to_series()
    is_bare = pl.col(REASON).is_not_null() & pl.all_horizontal(pl.col(figures).is_null())
    # Without any figure the reasons are the answer.
    return frame.select(is_bare & ~is_bare.all()).to_series()


def least_wanted(columns: Mapping[str, Sequence[str]]) -> str | None:
    """The column to hide first: the last one with sentences, so that figures stay, or the last.

    `None` if only the first column and those of `KEYS` are left: they are never hidden.
    """
    others = [name for name in list(columns)[1:] if name not in KEYS]
    sentences = [name for name in others if max(map(len, columns[name]), default=0) > SENTENCE]
    return next(reversed([one for one in sentences if one != ANSWER] or sentences or others), None)


def sentences_of_reasons(cells: Sequence[str], start: str = f"{REASON} of") -> Iterator[str]:
    """A sentence for each of the most frequent reasons, in place of the column."""
    found = Counter(cell for cell in cells if cell != MISSING)
    for reason, n in found.most_common(_MAX_REASONS):
        yield f"{start} {count_of(n, 'row')}: {reason}."
    if (more := len(found) - _MAX_REASONS) > 0:
        yield f"{count_of(more, 'more reason')} in column {REASON}."


_RHO_DIGITS = 2
"""A rank correlation of a few dozen models has no more: its interval is wider than the third."""
_OF_RHO = ("rho", "tau", "null_mean", "null_p95", "ceiling", "headroom")
_ENDS = ("low", "high")


def column_texts(frame: pl.DataFrame, name: str, *, is_grouped: bool = False) -> list[str]:
    """The texts of a column; rank correlations have two digits."""
    is_rho = any(word in name for word in _OF_RHO) or (name in _ENDS and "rho" in frame.columns)
    if is_rho and frame[name].dtype.is_float():
        known = frame[name].to_list()
        return [MISSING if one is None else f"{one:z.{_RHO_DIGITS}f}" for one in known]
    values = frame[name].to_list()
    if frame[name].dtype != pl.String:
        return [value_text(value, is_grouped=is_grouped) for value in values]
    texts = {value: value_text(value) for value in set(values)}  # few names in many rows
    return [texts[value] for value in values]

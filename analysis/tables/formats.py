"""Writes a table as text, JSON, CSV, Markdown or LaTeX."""

import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.tables.table import Table, with_brief_notes
from fleetrank.foundation.codec import json_text
from fleetrank.foundation.errors import count_of, visible_line
from fleetrank.foundation.vocabulary import Form

# Turns a value into text for people, in one way for terminal, pages, Markdown and LaTeX.
#
# JSON, CSV and Parquet do not use this module: they keep every digit.

MISSING = "-"
"""A missing value. It is ASCII, so every terminal can show it."""
_DIGITS = 4
"""Significant digits: more than the noise of a measurement leaves. Machine formats have all."""
_MOST = 1e15
"""Up to this limit a float represents every whole number, so all integer digits are shown."""
_LEAST = 1e-4
_WORDS: Mapping[bool | None, str] = MappingProxyType({None: MISSING, True: "yes", False: "no"})
UNITS: Mapping[str, str] = MappingProxyType(
    {
        "ns": "ns", "us": "µs", "ms": "ms", "s": "s", "bytes": "bytes", "mib": "MiB", "mb": "MB",
        "mj": "mJ", "mhz": "MHz", "mw": "mW", "c": "°C", "percent": "%", "utc": "UTC",
    }
)  # fmt: skip
"""The last part of a column's name to the unit in its heading."""


def value_text(value: object, *, is_grouped: bool = False) -> str:
    """One value on one line.

    Args:
        value: `None` is missing; an empty list too.
        is_grouped: a comma between thousands. Pages have it; text that a script may cut has not.
    """
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, float):
        return number_text(value, is_grouped=is_grouped)
    if isinstance(value, int):
        return f"{value:,}" if is_grouped else str(value)
    if isinstance(value, list | tuple):
        parts = [value_text(part, is_grouped=is_grouped) for part in value]
        return ", ".join(parts) or MISSING
    if isinstance(value, datetime):
        return time_text(value)
    # A name from a file must not start a new line.
    return visible_line(str(value))


def number_text(value: float, *, is_grouped: bool = False) -> str:
    """Four significant digits and all integer digits; an exponent only for extreme values.

    Zeros at the end are kept, so that the numbers of a column align.
    """
    if value == 0 or not _LEAST <= abs(value) < _MOST:
        return f"{value:.{_DIGITS}g}"
    decimals = max(0, _DIGITS - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}" if is_grouped else f"{value:.{decimals}f}"


def time_text(value: datetime) -> str:
    """A moment to the second, in UTC; a time without a zone is UTC already."""
    moment = value.astimezone(UTC) if value.tzinfo else value
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def heading(name: str) -> str:
    """`latency_p50_ms` as `latency p50, ms`; `platform_key` as `platform`."""
    words = name.removeprefix("n_").removesuffix("_key").split("_")
    unit = UNITS.get(words[-1]) if len(words) > 1 else None
    return f"{' '.join(words[:-1])}, {unit}" if unit else " ".join(words)


# Columns of text, and how they fit a width.
#
# A terminal hides sentences, then the last columns; columns that say what a row is about stay. A
# pipe hides none.

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


_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
    }
)
_MARKDOWN = str.maketrans({c: f"\\{c}" for c in "\\`*_[]<>|#~"} | {"&": "&amp;"})
"""Characters escaped in names: a name must not end a cell or become markup or HTML."""


EXPLAIN_HINT = (
    "The option --explain adds all notes, what the columns mean and how they are computed."
)


_RHO_DIGITS = 2
"""A rank correlation of a few dozen models has no more: its interval is wider than the third."""
_OF_RHO = ("rho", "tau", "null_mean", "null_p95", "ceiling", "headroom", "share_of_ceiling")
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


_FIGURE = re.compile(r"-|[\d.]+(  | [~?])?|-?[\d.]+ to -?[\d.]+")
"""A figure as a text, with its mark or the room for one; or an interval."""


def grid_of(table: Table) -> Grid:
    """The texts of a table."""
    columns = {name: column_texts(table.frame, name) for name in table.frame.columns}
    return Grid(
        columns=columns,
        numbers=frozenset(
            name
            for name, dtype in table.frame.schema.items()
            if dtype.is_numeric() or all(map(_FIGURE.fullmatch, columns[name]))
        ),
    )


def render(
    table: Table,
    form: str,
    *,
    is_explained: bool = False,
    width: int | None = None,
    said: Sequence[str] = (),
) -> str:
    """The table as text that ends with a newline.

    Args:
        table: what to write.
        form: one of `FORMATS`.
        is_explained: adds the explanation to the notes; JSON always has it, CSV has neither.
            Without it, text has notes of at most three sentences; other formats have all notes.
        width: the most letters of a line of the notes below text; `None` sets no limit.
        said: further sentences below a table with a width.

    Raises:
        AnalysisError: no such format.
    """
    if form not in FORMATS:
        raise AnalysisError(f"no format '{form}'", f"there are {', '.join(FORMATS)}")
    if form not in _OF_PROGRAMS:
        table = table.for_people()
    if is_explained and form not in _OF_PROGRAMS:
        notes = (*table.notes, *table.explanation)
        table = replace(table, notes=notes, explanation=())
    elif form == "table":
        table = with_brief_notes(table)
    if form == "table" and width is not None:
        return _to_text(table, width=width, said=said)
    return FORMATS[form](table)


def _to_text(table: Table, *, width: int | None = None, said: Sequence[str] = ()) -> str:
    grid, head = grid_of(table), [table.title]
    if table.columns:
        columns, shared = without_shared(grid.columns)
        cut = {
            name: [textwrap.shorten(one, SENTENCE) if len(one) > SENTENCE else one for one in cells]
            for name, cells in columns.items()
        }
        grid, head = replace(grid, columns=cut), [table.title, *filter(None, [shared])]
    notes = [f"Note: {visible_line(note)}" for note in (*table.notes, *said)]
    if table.explanation:
        notes.append(EXPLAIN_HINT)
    if width is not None:
        notes = [line for note in notes for line in textwrap.wrap(note, width)]
    return "\n".join([*head, "", *lines_of(grid, has_rule=True), "", *notes]) + "\n"


def _to_json(table: Table) -> str:
    """An object with title, notes, explanation and rows; a missing figure is null."""
    content = {
        "title": table.title,
        "notes": list(table.notes),
        "explanation": list(table.explanation),
        "rows": table.frame.to_dicts(),
    }
    return json_text(content, indent=2) + "\n"


FORMULA = "^[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-]"
"""A spreadsheet reads a text that starts so as a formula; an apostrophe before it says that it is
text. Source: OWASP, CSV injection. The page has the same in `copying.js`."""


def csv_text(frame: pl.DataFrame) -> str:
    """Full precision, one header line, no notes; lists are joined by `;`, missing is empty."""
    lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.List)]
    joined = (pl.col(name).cast(pl.List(pl.String)).list.join(";") for name in lists)
    texts = pl.col(frame.select(pl.col(pl.String, pl.List(pl.String))).columns)
    return frame.with_columns(joined).with_columns(texts.str.replace(FORMULA, "'$0")).write_csv()


def _to_markdown(table: Table) -> str:
    grid = grid_of(table)
    rule = ["---:" if name in grid.numbers else "---" for name in grid.columns]
    names, *rows = ([text.translate(_MARKDOWN) for text in row] for row in grid.lines)
    lines = [f"| {' | '.join(row)} |" for row in (names, rule, *rows)]
    notes = [f"- {note.translate(_MARKDOWN)}" for note in table.notes]
    return "\n".join([f"**{table.title.translate(_MARKDOWN)}**", "", *lines, "", *notes]) + "\n"


def _to_latex(table: Table) -> str:
    """A `table` float that needs `booktabs` and T1 fonts; notes are a paragraph below it."""
    grid = grid_of(table)
    align = "".join("r" if name in grid.numbers else "l" for name in grid.columns)
    head, *body = [
        f"{' & '.join(text.translate(_LATEX) for text in row)} \\\\" for row in grid.lines
    ]
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{table.title.translate(_LATEX)}}}",
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            head,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\par\footnotesize " + " ".join(note.translate(_LATEX) for note in table.notes),
            r"\end{table}",
            "",
        ]
    )


FORMATS: Mapping[str, Callable[[Table], str]] = MappingProxyType(
    {
        Form.TABLE: _to_text,
        Form.JSON: _to_json,
        Form.CSV: lambda table: csv_text(table.frame),
        Form.MARKDOWN: _to_markdown,
        Form.LATEX: _to_latex,
    }
)

_OF_PROGRAMS = (Form.JSON, Form.CSV)

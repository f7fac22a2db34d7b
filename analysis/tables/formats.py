"""Writes a table as text, JSON, CSV, Markdown or LaTeX."""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.tables.brief_notes import with_brief_notes
from fleetrank.analysis.tables.fitted_text import fitted
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.values import value_text
from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.visible_text import visible_line

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


FITTING = "Choose columns with --columns, or print everything with --format csv."


def render(
    table: Table,
    form: str,
    *,
    is_explained: bool = False,
    width: int | None = None,
    full: str = FITTING,
) -> str:
    """The table as text that ends with a newline.

    Args:
        table: what to write.
        form: one of `FORMATS`.
        is_explained: adds the explanation to the notes; JSON always has it, CSV has neither.
            Without it, text has notes of at most three sentences; other formats have all notes.
        width: the most letters of a line of text; `None` sets no limit.
        full: says how to get what does not fit the width.

    Raises:
        AnalysisError: no such format.
    """
    if form not in FORMATS:
        raise AnalysisError(f"no format '{form}'", f"there are {', '.join(FORMATS)}")
    if form not in _OF_PROGRAMS:
        table = table.counted_from_one()
    if is_explained and form not in _OF_PROGRAMS:
        notes = (*table.notes, *table.explanation)
        table = replace(table, notes=notes, explanation=())
    elif form == "table":
        table = with_brief_notes(table)
    if form == "table" and width is not None:
        return _to_text(table, width=width, full=full)
    return FORMATS[form](table)


def _to_text(table: Table, *, width: int | None = None, full: str = "") -> str:
    names, rows = table.frame.columns, _texts(table)
    given = table.notes
    if width is not None:
        cells = zip(*rows, strict=True) if rows else ([] for _ in names)
        fits = fitted(dict(zip(names, map(list, cells), strict=True)), width)
        names, rows = (
            list(fits.columns),
            [list(row) for row in zip(*fits.columns.values(), strict=True)],
        )
        given = (*given, *fits.notes(full))
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    align = [str.rjust if _is_number(table.frame.schema[name]) else str.ljust for name in names]
    lines = [
        "  ".join(side(text, width) for side, text, width in zip(align, row, widths, strict=True))
        for row in (names, ["-" * width for width in widths], *rows)
    ]
    notes = [f"Note: {visible_line(note)}" for note in given]
    if table.explanation:
        notes.append(EXPLAIN_HINT)
    if width is not None:
        notes = [line for note in notes for line in textwrap.wrap(note, width)]
    return "\n".join([table.title, "", *(line.rstrip() for line in lines), "", *notes]) + "\n"


def _to_json(table: Table) -> str:
    """An object with title, notes, explanation and rows; a missing figure is null."""
    content = {
        "title": table.title,
        "notes": list(table.notes),
        "explanation": list(table.explanation),
        "rows": table.frame.to_dicts(),
    }
    return json_text(content, indent=2) + "\n"


def _to_csv(table: Table) -> str:
    """Full precision, one header line, no notes; lists are joined by `;`, missing is empty."""
    lists = [name for name, dtype in table.frame.schema.items() if isinstance(dtype, pl.List)]
    flat = table.frame.with_columns(pl.col(name).list.join(";") for name in lists)
    return flat.write_csv()


def _to_markdown(table: Table) -> str:
    names = [_markdown(name) for name in table.frame.columns]
    rule = ["---:" if _is_number(dtype) else "---" for dtype in table.frame.dtypes]
    rows = [[_markdown(text) for text in row] for row in _texts(table)]
    lines = [f"| {' | '.join(row)} |" for row in (names, rule, *rows)]
    notes = [f"- {_markdown(note)}" for note in table.notes]
    return "\n".join([f"**{_markdown(table.title)}**", "", *lines, "", *notes]) + "\n"


def _to_latex(table: Table) -> str:
    """A `table` float that needs `booktabs` and T1 fonts; notes are a paragraph below it."""
    names = [_latex(name) for name in table.frame.columns]
    rows = [[_latex(text) for text in row] for row in _texts(table)]
    align = "".join("r" if _is_number(dtype) else "l" for dtype in table.frame.dtypes)
    head, *body = [f"{' & '.join(row)} \\\\" for row in (names, *rows)]
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{_latex(table.title)}}}",
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            head,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\par\footnotesize " + " ".join(_latex(note) for note in table.notes),
            r"\end{table}",
            "",
        ]
    )


FORMATS: Mapping[str, Callable[[Table], str]] = MappingProxyType(
    {
        "table": _to_text,
        "json": _to_json,
        "csv": _to_csv,
        "markdown": _to_markdown,
        "latex": _to_latex,
    }
)

_OF_PROGRAMS = ("json", "csv")


def _texts(table: Table) -> list[list[str]]:
    return [[value_text(value) for value in row] for row in table.frame.iter_rows()]


def _markdown(text: str) -> str:
    return text.translate(_MARKDOWN)


def _latex(text: str) -> str:
    return text.translate(_LATEX)


def _is_number(dtype: pl.DataType) -> bool:
    return dtype.is_numeric()

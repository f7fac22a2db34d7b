"""Writes a table as text, JSON, CSV, Markdown or LaTeX."""

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.tables.brief_notes import with_brief_notes
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.text_columns import (
    SENTENCE,
    Grid,
    brief_columns,
    column_texts,
    lines_of,
    with_intervals,
    without_figures,
    without_shared,
)
from fleetrank.analysis.tables.values import heading
from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.visible_text import visible_line
from fleetrank.foundation.vocabulary import Form
from fleetrank.foundation.wording import count_of

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
    is_cut: bool = False,
    width: int | None = None,
    said: Sequence[str] = (),
) -> str:
    """The table as text that ends with a newline.

    Args:
        table: what to write.
        form: one of `FORMATS`.
        is_explained: adds the explanation to the notes; JSON always has it, CSV has neither.
            Without it, text has notes of at most three sentences; other formats have all notes.
            LaTeX has the columns of `paper_table`.
        is_cut: LaTeX has the rows and columns of the table as they are.
        width: the most letters of a line of the notes below text; `None` sets no limit.
        said: further sentences below a table with a width.

    Raises:
        AnalysisError: no such format.
    """
    if form not in FORMATS:
        raise AnalysisError(f"no format '{form}'", f"there are {', '.join(FORMATS)}")
    if form == Form.LATEX and not is_cut:
        table = paper_table(table)
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


_CI = r" [95\,\% CI]"
_HEADS = {
    "rho": r"$\rho$", "tau_b": r"$\tau_b$", "n_models": "$n$", "null_mean": "null",
    "residual_p": "residual $p$", "p_value": "$p$", "r2": "$R^2$", "sizes": "way to read",
}  # fmt: skip
"""Columns to headings that a reader of papers knows."""
_FOR_PRINT = {"conclusion": "null_mean"}
"""What print shows in place of a word that a terminal has room for."""


def paper_table(table: Table) -> Table:
    """The rows with figures, and the columns that people see first; notes say what is left out."""
    shown = table.brief or table
    wanted = [_FOR_PRINT.get(one, one) for one in shown.columns or table.columns]
    cut = cut_table(table, shown.frame.filter(~without_figures(shown.frame)), wanted)
    notes = (*table.notes, *(shown.notes if shown is not table else ()))
    if n_out := table.frame.height - cut.frame.height:
        notes = (*notes, f"Left out: {count_of(n_out, 'row')}; the CSV file has them.")
    return replace(cut, notes=notes)


def cut_table(table: Table, frame: pl.DataFrame, wanted: Sequence[str]) -> Table:
    """The table with these rows of it, and of the wanted columns those that people see."""
    frame = with_intervals(frame, wanted)
    chosen = brief_columns(frame.to_dict(as_series=False), wanted)
    return replace(table, frame=frame.select(chosen), columns=chosen, brief=None)


def _to_latex(table: Table) -> str:
    """A `table` float that needs `booktabs` and T1 fonts; notes are comments before it."""
    grid = grid_of(table)
    columns, shared = without_shared(grid.columns)
    # The headings that every reader looks for stay; so does all of a table with equal rows.
    kept = {name for name in grid.columns if not columns or name in columns or name in _HEADS}
    columns = {name: texts for name, texts in grid.columns.items() if name in kept}
    notes = (*filter(None, [shared]), *table.notes)
    heads: list[str] = []
    cells: list[list[str]] = []
    align = ""
    for name, texts in columns.items():
        escaped = [text.translate(_LATEX) for text in texts]
        if "interval" in name and align.endswith("r"):
            heads[-1] += _CI
            pairs = zip(cells[-1], escaped, strict=True)
            ends = ((value, f" [{end}]" if " to " in end else "") for value, end in pairs)
            cells[-1] = [value + end.replace(" to ", ", ") for value, end in ends]
            continue
        heads.append(_HEADS.get(name, heading(name).translate(_LATEX)))
        cells.append(escaped)
        align += "r" if name in grid.numbers else "l"
    body = [f"{' & '.join(row)} \\\\" for row in zip(*cells, strict=True)]
    return "\n".join(
        [
            *(f"% {visible_line(note)}" for note in notes),
            r"\begin{table}",
            rf"\caption{{{table.title.translate(_LATEX)}}}",
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            f"{' & '.join(heads)} \\\\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
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

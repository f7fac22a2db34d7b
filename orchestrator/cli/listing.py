"""Output of commands: rows as a table or JSON, and the options that choose a part of it."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import polars as pl
import typer

from fleetrank.analysis.labels import keys_in, labels_of
from fleetrank.analysis.tables.formats import (
    KEYS,
    PIPE_WIDTH,
    REASON,
    fitted,
    grid_of_rows,
    lines_of,
    sentences_of_reasons,
)
from fleetrank.foundation.codec import json_text
from fleetrank.foundation.errors import count_of, did_you_mean
from fleetrank.orchestrator.cli.options import option, with_options
from fleetrank.orchestrator.errors import UsageError

if TYPE_CHECKING:
    from fleetrank.analysis.tables.table import Table

MOST_ON_TERMINAL = 50
"""Rows on a terminal without `--limit`: about two screens."""
_BEHIND = ("flags",)
"""Columns with the reasons of a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """What to print of a table.

    Attributes:
        columns: names in the order to print them; empty prints all.
        sort: the column to sort by; `None` keeps the order of the table. Missing values come last.
        is_descending: the largest value first.
        limit: the most rows; 0 prints all; `None` prints all but on a terminal.
        is_whole: people also see empty columns and rows that have a reason in place of figures.
    """

    columns: tuple[str, ...] = ()
    sort: str | None = None
    is_descending: bool = False
    limit: int | None = None
    is_whole: bool = False

    def names(self, known: Sequence[str]) -> list[str]:
        """The columns to print.

        Raises:
            UsageError: the table lacks a requested column.
        """
        for name in (*self.columns, *([] if self.sort is None else [self.sort])):
            if name not in known:
                raise UsageError(
                    f"the table has no column '{name}'",
                    f"{did_you_mean(name, known)}it has {', '.join(known)}",
                )
        return list(dict.fromkeys(self.columns)) or list(known)

    def order(self, values: Sequence[object]) -> list[int]:
        """The numbers of the rows, sorted by their values in the column `sort`; stable."""
        present = [number for number, value in enumerate(values) if value is not None]
        try:
            found = sorted(present, key=values.__getitem__, reverse=self.is_descending)  # type: ignore[arg-type]
        except TypeError:  # such as an object beside a number
            found = sorted(present, key=lambda n: str(values[n]), reverse=self.is_descending)
        return found + [number for number, value in enumerate(values) if value is None]

    def most(self, n_rows: int, *, is_on_terminal: bool) -> int:
        """How many of the rows to print."""
        limit = self.limit
        if limit is None:
            limit = MOST_ON_TERMINAL if is_on_terminal else 0
        return min(n_rows, limit) if limit else n_rows


EVERYTHING = TableView()
"""Every column, in the order of the table."""


def left_out(n_rows: int, n_shown: int) -> str | None:
    """How many rows are not printed and how to get them; `None` if all are."""
    if n_shown == n_rows:
        return None
    return f"{n_shown} of {count_of(n_rows, 'row')} shown; --limit 0 shows all"


def viewed_table(
    table: "Table",
    view: TableView,
    *,
    is_on_terminal: bool,
    is_for_people: bool = False,
    is_explained: bool = False,
) -> tuple["Table", str | None]:
    """The part of a table to print, and the sentence on the rows that are not in it.

    People do not see empty columns, rows with a reason in place of figures, nor the flags behind a
    verdict, unless they ask.

    Raises:
        UsageError: the table lacks a requested column.
    """
    frame, names = table.frame, view.names(table.frame.columns)
    most = view.most(frame.height, is_on_terminal=is_on_terminal)
    if view.sort is not None:
        frame = frame[view.order(frame[view.sort].to_list())]
    said = [left_out(frame.height, most)]
    frame = frame.head(most)
    if is_for_people and not view.is_whole:
        bare = _has_no_figure(frame)
        said.append(_hidden(bare, frame))
        frame = frame.filter(~bare)
        behind = _BEHIND if "verdict" in frame.columns and not is_explained else ()
        if not view.columns:
            names = [one for one in names if one not in behind and _has_value(frame, one)]
    return replace(table, frame=frame.select(names)), "; ".join(filter(None, said)) or None


def _has_no_figure(frame: pl.DataFrame) -> pl.Series:
    """Rows whose only content is the reason why their figures are missing."""
    figures = [name for name, dtype in frame.schema.items() if dtype.is_float()]
    if REASON not in frame.columns or not figures:
        return frame.select(pl.repeat(value=False, n=pl.len())).to_series()
    is_bare = pl.col(REASON).is_not_null() & pl.all_horizontal(pl.col(figures).is_null())
    # Without any figure the reasons are the answer.
    return frame.select(is_bare & ~is_bare.all()).to_series()


def _hidden(bare: pl.Series, frame: pl.DataFrame) -> str | None:
    if not bare.any():
        return None
    reasons = "; ".join(sentences_of_reasons(frame.filter(bare)[REASON].to_list()))
    return f"{count_of(int(bare.sum()), 'row')} without a figure: {reasons} --all shows them"


def _has_value(frame: pl.DataFrame, name: str) -> bool:
    return name in KEYS or frame.height == 0 or frame[name].null_count() < frame.height


def _view_of(
    columns: str | None,
    sort: str | None,
    descending: bool,
    limit: int | None,
    show_all: bool = False,
) -> TableView:
    names = tuple(name.strip() for name in (columns or "").split(",") if name.strip())
    if columns is not None and not names:
        raise UsageError("--columns names no column", "write it as --columns model,latency_p50_ms")
    if descending and sort is None:
        raise UsageError("--descending needs a column", "add --sort COLUMN")
    return TableView(
        columns=names,
        sort=sort,
        is_descending=descending,
        limit=limit,
        is_whole=show_all,
    )


_OPTIONS = (
    option(
        "columns",
        str | None,
        None,
        typer.Option("--columns", metavar="A,B", help="Only these columns, in this order."),
    ),
    option(
        "sort",
        str | None,
        None,
        typer.Option(
            "--sort", metavar="COLUMN", help="Sort by this column; missing values come last."
        ),
    ),
    option(
        "descending",
        bool,
        False,
        typer.Option("--descending", help="Sort the largest value first."),
    ),
    option(
        "limit",
        int | None,
        None,
        typer.Option(
            "--limit",
            "--top",
            min=0,
            metavar="N",
            help=f"Print the first N rows (default: {MOST_ON_TERMINAL} on a terminal; 0: all).",
        ),
    ),
)
with_view = with_options("view", _OPTIONS, _view_of)
"""Gives a command the options of a listing in place of its parameter `view`."""
_ALL = option(
    "show_all",
    bool,
    False,
    typer.Option("--all", help="Also show empty columns, and rows without a figure."),
)
with_table_view = with_options("view", (*_OPTIONS, _ALL), _view_of)
"""The same for a command that prints a table of the analysis."""


def write_data(content: bytes) -> None:
    """Writes text: unescaped UTF-8 for a program, escaped for a terminal."""
    if sys.stdout.isatty() or not hasattr(sys.stdout, "buffer"):
        print(content.decode(), end="")
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.flush()


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_table(
    rows: Sequence[Mapping[str, object]], as_json: bool, view: TableView = EVERYTHING
) -> None:
    """Prints rows with equal keys; as JSON a list of objects with `null` for unknown values.

    A note on standard error says how many rows or columns are left out.

    Raises:
        UsageError: the rows lack a column that `view` names.
    """
    is_on_terminal = not as_json and sys.stdout.isatty()
    chosen, note = _viewed(rows, view, is_on_terminal=is_on_terminal)
    if as_json:
        print(json_text(chosen, indent=2))
        return
    chosen, common = _named(chosen)
    if common:
        print(f"all on {common}")
    if not rows:
        print("(none)")
    elif is_on_terminal:
        from fleetrank.orchestrator.cli.terminal import print_rows

        print_rows(chosen, note)
        return
    else:
        _print_lines(chosen)
    if note:
        print(note, file=sys.stderr)


def _named(rows: list[dict[str, object]]) -> tuple[list[dict[str, object]], str]:
    """The rows with names of platforms in place of keys, and what all platforms share."""
    texts = (text for row in rows for text in row.values() if isinstance(text, str))
    labels = labels_of(keys_in(texts))
    named = [
        {name: labels.said(one) if isinstance(one, str) else one for name, one in row.items()}
        for row in rows
    ]
    return named, labels.common


def _viewed(
    rows: Sequence[Mapping[str, object]], view: TableView, *, is_on_terminal: bool
) -> tuple[list[dict[str, object]], str | None]:
    if not rows:
        return [], None
    names = view.names(list(rows[0]))
    key = view.sort
    numbers = range(len(rows)) if key is None else view.order([row.get(key) for row in rows])
    most = view.most(len(rows), is_on_terminal=is_on_terminal)
    chosen = [rows[number] for number in numbers[:most]]
    shown = [{name: row.get(name) for name in names} for row in chosen]
    return shown, left_out(len(rows), len(shown))


def _print_lines(rows: Sequence[Mapping[str, object]]) -> None:
    grid = grid_of_rows(rows)
    fits = fitted(grid.columns, PIPE_WIDTH)
    print("\n".join(lines_of(replace(grid, columns=fits.columns))))
    for text in fits.notes("--json prints everything."):
        print(text, file=sys.stderr)

"""Output of commands: rows as a table or JSON, and the options that choose a part of it."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import polars as pl
import typer

from fleetrank.analysis.labels import keys_in, labels_of
from fleetrank.analysis.tables.text_columns import (
    REASON,
    column_texts,
    grid_of_rows,
    lines_of,
    sentences_of_reasons,
    without_figures,
)
from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.wording import count_of, did_you_mean
from fleetrank.orchestrator.cli.options import option, with_options
from fleetrank.orchestrator.errors import UsageError

if TYPE_CHECKING:
    from fleetrank.analysis.tables.table import Table

MOST_ROWS = 50
"""Rows that people see without `--limit`: about two screens."""
_MOST_NAMED = 12
"""Columns that a sentence names; --json has the names of more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """What to print of a table.

    Attributes:
        columns: names in the order to print them; empty prints all.
        sort: the column to sort by; `None` keeps the order of the table. Missing values come last.
        is_descending: the largest value first.
        limit: the most rows; 0 prints all; `None` prints all but for people.
        is_whole: people also see every row and every column.
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

    def most(self, n_rows: int, *, is_for_people: bool) -> int:
        """How many of the rows to print."""
        limit = self.limit
        if limit is None:
            limit = MOST_ROWS if is_for_people and not self.is_whole else 0
        return min(n_rows, limit) if limit else n_rows


EVERYTHING = TableView()
"""Every column, in the order of the table."""


def left_out(n_rows: int, n_shown: int) -> list[str]:
    """How many rows are not printed and how to get them; empty if all are."""
    if n_shown == n_rows:
        return []
    return [f"{n_shown} of {count_of(n_rows, 'row')} shown; --all shows all."]


def viewed_table(
    table: "Table", view: TableView, *, is_for_people: bool
) -> tuple["Table", list[str]]:
    """The part of a table to print, and sentences on what is not in it.

    People see a few columns, no row with a reason in place of figures, and each reason once, unless
    they ask for more.

    Raises:
        UsageError: the table lacks a requested column.
    """
    names = view.names(table.frame.columns)
    is_brief = is_for_people and not view.is_whole and not view.columns
    shown = table.brief if is_brief and view.sort is None and table.brief else table
    frame, said = shown.frame, [*shown.notes] if shown is not table else []
    if not shown.columns and (n := table.frame.height - frame.height):
        said.append(f"{count_of(n, 'more row')}: --all shows them.")
    if view.sort is not None:
        frame = frame[view.order(frame[view.sort].to_list())]
    if is_for_people and not view.is_whole:
        bare = without_figures(frame)
        said += _hidden(bare, frame)
        frame = frame.filter(~bare)
    most = view.most(frame.height, is_for_people=is_for_people)
    said += left_out(frame.height, most)
    if not is_brief:
        return replace(table, frame=frame.head(most).select(names), columns=()), said
    from fleetrank.analysis.tables.formats import cut_table

    cut = cut_table(table, frame, shown.columns or table.columns)
    if REASON in frame.columns and REASON not in cut.columns:
        said += sentences_of_reasons(column_texts(frame, REASON))
    said += _more([*_known(shown.frame), *_known(table.frame)], cut.columns)
    return replace(cut, frame=cut.frame.head(most)), said


def _known(frame: pl.DataFrame) -> list[str]:
    """The columns with a value."""
    return [one.name for one in frame.iter_columns() if one.null_count() < len(one)]


def _more(known: Sequence[str], chosen: Sequence[str]) -> Iterator[str]:
    """Which columns are not printed, and how to get them; nothing if all are."""
    ends = {one.replace("interval", end) for one in chosen for end in ("low", "high")}
    names = [one for one in dict.fromkeys(known) if one not in (*chosen, *ends, REASON)]
    if n := len(platforms := keys_in(names)):
        yield f"{count_of(n, 'more platform')}: --source NAME chooses one."
    names = [one for one in names if one not in platforms]
    if len(names) > _MOST_NAMED:
        yield f"{count_of(len(names), 'more column')}: --all shows them."
    elif names:
        yield f"--all also shows {', '.join(names)}."


def _hidden(bare: pl.Series, frame: pl.DataFrame) -> list[str]:
    if not bare.any():
        return []
    reasons = " ".join(sentences_of_reasons(frame.filter(bare)[REASON].to_list()))
    return [f"{count_of(int(bare.sum()), 'row')} without a figure, which --all shows: {reasons}"]


def _view_of(
    columns: str | None,
    sort: str | None,
    descending: bool,
    limit: int | None,
    show_all: bool,
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


_LIMIT = f"Print the first N rows (default: {MOST_ROWS}; a list in a pipe: all; 0: all)."
_OPTIONS = (
    option("columns", str | None, None, typer.Option(
        "--columns", metavar="A,B", help="Only these columns, in this order.")),
    option("sort", str | None, None, typer.Option(
        "--sort", metavar="COLUMN", help="Sort by this column; missing values come last.")),
    option("descending", bool, False, typer.Option(
        "--descending", help="Sort the largest value first.")),
    option("limit", int | None, None, typer.Option(
        "--limit", "--top", min=0, metavar="N", help=_LIMIT)),
    option("show_all", bool, False, typer.Option("--all", help="Show every column and every row.")),
)  # fmt: skip
with_view = with_options("view", _OPTIONS, _view_of)
"""Gives a command the options of a listing in place of its parameter `view`."""


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
    rows: Sequence[Mapping[str, object]],
    as_json: bool,
    view: TableView = EVERYTHING,
    columns: Sequence[str] = (),
) -> None:
    """Prints rows with equal keys; as JSON a list of objects with `null` for unknown values.

    A note on standard error says how many rows or columns are left out.

    Args:
        rows: with equal keys.
        as_json: as JSON, which has every column.
        view: what the user chose.
        columns: those that people see unless they choose; empty for all.

    Raises:
        UsageError: the rows lack a column that `view` names.
    """
    is_on_terminal = not as_json and sys.stdout.isatty()
    is_brief = bool(columns) and not (as_json or view.columns or view.is_whole)
    shown = replace(view, columns=tuple(columns)) if is_brief else view
    chosen, said = _viewed(rows, shown, is_on_terminal=is_on_terminal)
    said += _more(list(rows[0]), columns) if is_brief and rows else ()
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

        print_rows(chosen, said)
        return
    else:
        print("\n".join(lines_of(grid_of_rows(chosen))))
    for one in said:
        print(one, file=sys.stderr)


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
) -> tuple[list[dict[str, object]], list[str]]:
    if not rows:
        return [], []
    names = view.names(list(rows[0]))
    key = view.sort
    numbers = range(len(rows)) if key is None else view.order([row.get(key) for row in rows])
    most = view.most(len(rows), is_for_people=is_on_terminal)
    chosen = [rows[number] for number in numbers[:most]]
    shown = [{name: row.get(name) for name in names} for row in chosen]
    return shown, left_out(len(rows), len(shown))

"""What a terminal shows of a table: a console that escapes text, and columns that fit."""

import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from fleetrank.analysis.tables.brief_notes import with_brief_notes
from fleetrank.analysis.tables.formats import EXPLAIN_HINT, grid_of
from fleetrank.analysis.tables.text_columns import (
    KEYS,
    REASON,
    Grid,
    grid_of_rows,
    least_wanted,
    sentences_of_reasons,
    without_shared,
)
from fleetrank.analysis.tables.values import MISSING, heading, value_text
from fleetrank.foundation.visible_text import visible
from fleetrank.foundation.wording import count_of
from fleetrank.orchestrator.cli.visible_streams import VisibleStream

if TYPE_CHECKING:
    from fleetrank.analysis.tables.table import Table

_GAP = 2
_LEAST_TEXT = 16
"""Least width of a text column; narrower is hard to read. A name in the first is only wrapped if it
takes more than half of the width."""

Columns = Mapping[str, list[str]]


class VisibleConsole(Console):
    """A Rich console on standard output: it sends only Rich's own control codes."""

    def __init__(self) -> None:
        stream = sys.stdout
        file = stream.unescaped if isinstance(stream, VisibleStream) else stream
        super().__init__(file=file, highlight=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of a renderable, with all text escaped except Rich's own codes."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else visible(segment.text)
            yield Segment(text, segment.style, segment.control)


def print_on_terminal(
    table: "Table",
    console: Console,
    *,
    is_explained: bool = False,
    full: str = "--format csv",
    said: Sequence[str] = (),
) -> None:
    """Prints a table within the console's width; columns that do not fit are listed below it.

    A value that all rows share is printed once, above the table. `full` is the option that prints
    all columns; `said` are sentences on what is left out.
    """
    table = table.for_people()
    console.print(Text(table.title, style="bold"))
    _print_grid(grid_of(table), console, full)
    for one in said:
        console.print(Text(value_text(one)))
    brief = with_brief_notes(table)
    for one in (*table.notes, *table.explanation) if is_explained else brief.notes:
        console.print(Text(f"Note: {value_text(one)}"))
    if brief.explanation and not is_explained:
        console.print(Text(EXPLAIN_HINT, style="dim"))


def print_rows(rows: Sequence[Mapping[str, object]], said: Sequence[str]) -> None:
    """Prints rows with equal keys on a terminal, within its width."""
    console = VisibleConsole()
    _print_grid(grid_of_rows(rows, has_headings=True), console, "--json")
    for one in said:
        console.print(Text(one))


def _print_grid(table: Grid, console: Console, full: str) -> None:
    columns, numbers = table.columns, table.numbers
    shown, shared = without_shared(columns)
    widths = _fitting_widths(shown, numbers, console.width)
    hidden = [name for name in shown if name not in widths]
    grid = RichTable(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name, width in widths.items():
        title = Text(heading(name))
        grid.add_column(title, justify="right" if name in numbers else "left", width=width)
    rows = [*zip(*(shown[name] for name in widths), strict=True)]
    figures = [at for at, name in enumerate(widths) if at and name not in KEYS]
    known = [row for row in rows if not hidden or any(row[at] != MISSING for at in figures)]
    for row in known or rows:
        grid.add_row(*(Text(cell, overflow="fold") for cell in row))
    if shared:
        console.print(Text(shared, style="dim"))
    console.print("", grid, "", sep="\n")
    if REASON in hidden:
        for line in sentences_of_reasons(columns[REASON]):
            console.print(Text(line))
    if known and (n := len(rows) - len(known)):
        console.print(Text(f"{count_of(n, 'row')} with figures in hidden columns only."))
    if hidden:
        names = ", ".join(hidden)
        console.print(Text(f"Hidden columns: {names}. Use a wider terminal or {full}."))


def _fitting_widths(columns: Columns, numbers: Container[str], width: int) -> Mapping[str, int]:
    """A width for each column that is not hidden; equal ones if the keys alone do not fit."""
    kept = dict(columns)
    while True:
        for least in (_LEAST_TEXT, 0):
            if (widths := _widths(kept, numbers, width, least)) is not None:
                return widths
        if (name := least_wanted(kept)) is None:
            return dict.fromkeys(kept, max(1, (width + _GAP) // len(kept) - _GAP))
        del kept[name]


def _widths(
    columns: Columns, numbers: Container[str], width: int, least: int
) -> Mapping[str, int] | None:
    """A width for each column: numbers and words unbroken, text gets the remaining room.

    Text columns have at least `least` letters, and need no more than `_LEAST_TEXT`. `None` when the
    columns do not fit.
    """
    words = {
        name: max(map(len, " ".join((heading(name), *cells)).split()), default=1)
        for name, cells in columns.items()
    }
    wanted = {
        name: max(*map(len, heading(name).split()), *map(len, cells), 1)
        for name, cells in columns.items()
    }
    first = next(iter(columns), "")
    is_name = (
        not any(" " in cell for cell in columns.get(first, ()))
        and 2 * wanted.get(first, 0) <= width
    )
    found = {
        name: most
        if name in numbers or (is_name and name == first)
        else min(most, _LEAST_TEXT, max(least, words[name]))
        for name, most in wanted.items()
    }
    left = width - sum(found.values()) - _GAP * (len(found) - 1)
    if left < 0:
        return None
    for name, most in wanted.items():
        more = min(left, most - found[name])
        found[name] += more
        left -= more
    return found

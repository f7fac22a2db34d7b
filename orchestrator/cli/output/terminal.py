"""What a terminal shows: a console that escapes text from files, and tables of statistics."""

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text

from fleetrank.analysis.tables.formats import EXPLAIN_HINT
from fleetrank.analysis.tables.values import MISSING, heading, value_text
from fleetrank.foundation.visible_text import visible
from fleetrank.orchestrator.cli.output.listing import VisibleStream

if TYPE_CHECKING:
    from fleetrank.analysis.tables.table import Table

_GAP = 2
_LEAST_TEXT = 16
"""Minimum width of a text column, below which it is hard to read; the first is never wrapped."""
_PART = "/"
"""Columns of platform keys, whose parts are mostly equal within one table."""

Columns = dict[str, list[str]]


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


def print_on_terminal(table: "Table", console: Console, *, is_explained: bool = False) -> None:
    """Prints a table within the console's width; columns that do not fit are listed below it.

    A value common to all rows is printed once, above the table.
    """
    columns = {
        name: [value_text(value) for value in table.frame[name].to_list()]
        for name in table.frame.columns
    }
    shown, shared = _without_shared(columns)
    numbers = {name for name, dtype in table.frame.schema.items() if dtype.is_numeric()}
    hidden: list[str] = []
    while (widths := _widths(shown, numbers, console.width)) is None and len(shown) > 1:
        hidden.insert(0, shown.popitem()[0])
    grid = Grid(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name, width in (widths or dict.fromkeys(shown, console.width)).items():
        title = Text(heading(name))
        grid.add_column(title, justify="right" if name in numbers else "left", width=width)
    for row in zip(*shown.values(), strict=True):
        grid.add_row(*(Text(cell, overflow="fold") for cell in row))
    console.print(Text(table.title, style="bold"))
    empty = [name for name, text in shared.items() if text == MISSING]
    for name, text in shared.items():
        if name not in empty:
            console.print(Text(f"{name} of all rows: {text}", style="dim"))
    if empty:
        console.print(Text(f"empty in all rows: {', '.join(empty)}", style="dim"))
    console.print("", grid, "", sep="\n")
    if hidden:
        names = ", ".join(hidden)
        console.print(Text(f"Hidden columns: {names}. Use a wider terminal or --format csv."))
    for note in (*table.notes, *(table.explanation if is_explained else ())):
        console.print(Text(f"Note: {value_text(note)}"))
    if table.explanation and not is_explained:
        console.print(Text(EXPLAIN_HINT, style="dim"))


def _without_shared(columns: Columns) -> tuple[Columns, dict[str, str]]:
    """Splits columns into varying and constant values: whole cells, or parts of platforms."""
    shown: Columns = {}
    shared: dict[str, str] = {}
    for name, cells in columns.items():
        rows = [cell.split(_PART) for cell in cells]
        if len(cells) < 2:
            shown[name] = cells
        elif len(set(cells)) == 1:
            shared[name] = cells[0]
        elif min(map(len, rows)) > 2 and len(set(map(len, rows))) == 1:
            differs = [len(set(parts)) > 1 for parts in zip(*rows, strict=True)]
            pairs = [list(zip(row, differs, strict=True)) for row in rows]
            shown[name] = [_PART.join(part for part, it in row if it) for row in pairs]
            if not all(differs):
                shared[name] = _PART.join("*" if it else part for part, it in pairs[0])
        else:
            shown[name] = cells
    return shown, shared


def _widths(columns: Columns, numbers: set[str], width: int) -> Mapping[str, int] | None:
    """A width for each column: numbers and heading words unbroken, text gets the remaining room.

    `None` when the columns do not fit.
    """
    wanted = {
        name: max(*map(len, heading(name).split()), *map(len, cells), 1)
        for name, cells in columns.items()
    }
    is_whole = {*numbers, next(iter(columns), "")}
    found = {
        name: most if name in is_whole else min(most, _LEAST_TEXT) for name, most in wanted.items()
    }
    left = width - sum(found.values()) - _GAP * (len(found) - 1)
    if left < 0:
        return None
    for name, most in wanted.items():
        more = min(left, most - found[name])
        found[name] += more
        left -= more
    return found

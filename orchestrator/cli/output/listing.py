"""Output of commands: rows as a table or JSON."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from fleetrank.analysis.tables.fitted_text import PIPE_WIDTH, fitted
from fleetrank.analysis.tables.values import value_text
from fleetrank.foundation.strict_json import json_text
from fleetrank.orchestrator.cli.output.table_view import EVERYTHING, TableView, left_out


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
    elif not rows:
        print("(none)")
    elif is_on_terminal:
        from fleetrank.orchestrator.cli.output.terminal import print_rows

        print_rows(chosen, note, has_pager=view.has_pager)
        return
    else:
        _print_lines(chosen)
    if note:
        print(note, file=sys.stderr)


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
    names = list(rows[0]) if rows else []
    texts = {value_text(name): [value_text(row.get(name)) for row in rows] for name in names}
    fits = fitted(texts, PIPE_WIDTH)
    lines = [list(fits.columns), *zip(*fits.columns.values(), strict=True)]
    widths = [max(len(line[number]) for line in lines) for number in range(len(fits.columns))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())
    for text in fits.notes("--json prints everything."):
        print(text, file=sys.stderr)

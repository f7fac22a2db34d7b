"""Output of commands: rows as a table or JSON."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import typer

from fleetrank.analysis.labels import keys_in, labels_of
from fleetrank.analysis.tables.formats import (
    PIPE_WIDTH,
    fitted,
    grid_of_rows,
    lines_of,
)
from fleetrank.foundation.codec import json_text
from fleetrank.orchestrator.cli.table_view import EVERYTHING, TableView, left_out


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

        print_rows(chosen, note, has_pager=view.has_pager)
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

"""Rows on a terminal, or as JSON for scripts."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_table(rows: Sequence[Mapping[str, object]], as_json: bool) -> None:
    """Prints rows of equal keys; as JSON a list of objects, `null` for what is not known."""
    if as_json:
        print(json.dumps(list(rows), indent=2, ensure_ascii=False, default=str))
        return
    if not rows:
        print("(none)")
        return
    names = list(rows[0])
    lines = [names, *([_text(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[number]) for line in lines) for number in range(len(names))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value)
    # A name from a file must not move the terminal's cursor or start a new line.
    return "".join(letter if letter.isprintable() else "?" for letter in str(value))

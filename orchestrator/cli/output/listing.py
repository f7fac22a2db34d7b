"""Rows on a terminal, or as JSON for scripts."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from fleetrank.analysis.tables.values import value_text
from fleetrank.foundation.strict_json import json_text

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_table(rows: Sequence[Mapping[str, object]], as_json: bool) -> None:
    """Prints rows with equal keys; as JSON a list of objects with `null` for unknown values."""
    if as_json:
        print(json_text(list(rows), indent=2))
        return
    if not rows:
        print("(none)")
        return
    names = list(rows[0])
    lines = [
        [value_text(name) for name in names],
        *([value_text(row.get(name)) for name in names] for row in rows),
    ]
    widths = [max(len(line[number]) for line in lines) for number in range(len(names))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())

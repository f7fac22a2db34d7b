"""Rows on a terminal, or as JSON for scripts."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.visible_text import visible_line

_DIGITS = 6
"""Significant digits of a fractional number; finer than the noise of any measurement."""
_MOST = 1e15
"""Largest limit below which a float can represent every whole number."""

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
        [_text(name) for name in names],
        *([_text(row.get(name)) for name in names] for row in rows),
    ]
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
        return _number(value)
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value)
    # A name from a file must not start a new line.
    return visible_line(str(value))


def _number(value: float) -> str:
    """Whole numbers in full, others to six digits (all integer digits), extremes as `1e-09`."""
    if value.is_integer() and abs(value) < _MOST:
        return str(int(value))
    if not 1e-4 <= abs(value) < _MOST:
        return f"{value:.{_DIGITS}g}"
    decimals = max(0, _DIGITS - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text

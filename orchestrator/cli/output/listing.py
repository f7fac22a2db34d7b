"""Output of commands: rows as a table or JSON, on streams that escape control characters.

Escaping happens where text leaves the process, so every message and table is covered.
"""

import io
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, TextIO

import typer

from fleetrank.analysis.tables.values import value_text
from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.visible_text import visible


class VisibleStream(io.TextIOWrapper):
    """Writes text to the file of another stream, with unsafe characters escaped.

    Attributes:
        unescaped: the underlying stream, for intended control codes.
    """

    def __init__(self, stream: io.TextIOWrapper) -> None:
        stream.flush()
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            # Characters that the terminal's encoding lacks are shown as numbers.
            errors="backslashreplace",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self.unescaped = stream

    def write(self, text: str) -> int:
        """Writes text; returns the number of characters passed in."""
        super().write(visible(text))
        return len(text)

    def close(self) -> None:
        """Flushes the buffer; the file belongs to the other stream."""
        self.flush()


def make_streams_visible() -> None:
    """Replaces standard output and error of this process."""
    sys.stdout, sys.stderr = _made_visible(sys.stdout), _made_visible(sys.stderr)


def write_data(content: bytes) -> None:
    """Writes text: unescaped UTF-8 for a program, escaped for a terminal."""
    if sys.stdout.isatty() or not hasattr(sys.stdout, "buffer"):
        print(content.decode(), end="")
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.flush()


def _made_visible(stream: TextIO) -> TextIO:
    # The stream has no file under pythonw; a test may also have replaced it.
    return VisibleStream(stream) if isinstance(stream, io.TextIOWrapper) else stream


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

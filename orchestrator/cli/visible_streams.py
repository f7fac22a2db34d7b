"""Standard output and error that escape control characters.

Escaping happens where text leaves the process, so every message and table is covered.
"""

import io
import shutil
import sys
import textwrap
from time import perf_counter
from typing import TextIO

from fleetrank.foundation.visible_text import visible


class VisibleStream(io.TextIOWrapper):
    """Writes text to the file of another stream, with unsafe characters escaped.

    Attributes:
        unescaped: the underlying stream, for intended control codes.
        wrote_s: when it was last written to, of `perf_counter`.
    """

    wrote_s = 0.0

    def __init__(self, stream: io.TextIOWrapper, *, is_wrapped: bool = False) -> None:
        """Creates it; `is_wrapped` breaks lines longer than the terminal between words."""
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
        self._is_wrapped = is_wrapped

    def write(self, text: str) -> int:
        """Writes text; returns the number of characters passed in."""
        self.wrote_s = perf_counter()
        shown = visible(text)
        super().write("\n".join(map(_wrapped, shown.split("\n"))) if self._is_wrapped else shown)
        return len(text)

    def close(self) -> None:
        """Flushes the buffer; the file belongs to the other stream."""
        self.flush()


def make_streams_visible() -> None:
    """Replaces standard output and error of this process."""
    sys.stdout = _made_visible(sys.stdout)
    sys.stderr = _made_visible(sys.stderr, is_wrapped=True)


def _made_visible(stream: TextIO | None, *, is_wrapped: bool = False) -> TextIO:
    if stream is None:  # it was closed; the next file that is opened must not take its number
        return open("/dev/null", "w", encoding="utf-8")  # noqa: PTH123 - as long as the process
    # The stream has no file under pythonw; a test may also have replaced it.
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    return VisibleStream(stream, is_wrapped=is_wrapped and stream.isatty())


def _wrapped(line: str) -> str:
    """A message in lines that fit the terminal; a word longer than a line is not broken."""
    width = shutil.get_terminal_size().columns
    if len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.fill(
        line, width, subsequent_indent=indent, replace_whitespace=False, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip

"""The streams that everything is printed to: what could drive a terminal is shown escaped.

It is done where text leaves the process, so that no message and no table can forget it.
"""

import io
import sys
from typing import TextIO

from fleetrank.foundation.visible_text import visible


class VisibleStream(io.TextIOWrapper):
    """Writes text to the file of another stream, with unsafe characters escaped.

    Attributes:
        unescaped: the other stream, for what drives the terminal on purpose.
    """

    def __init__(self, stream: io.TextIOWrapper) -> None:
        stream.flush()
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            # What the terminal's encoding lacks is shown as its number.
            errors="backslashreplace",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self.unescaped = stream

    def write(self, text: str) -> int:
        """Writes text; returns how many characters were given."""
        super().write(visible(text))
        return len(text)

    def close(self) -> None:
        """Writes out what is waiting; the file belongs to the other stream."""
        self.flush()


def make_streams_visible() -> None:
    """Replaces standard output and error of this process."""
    sys.stdout, sys.stderr = _made_visible(sys.stdout), _made_visible(sys.stderr)


def write_data(content: bytes) -> None:
    """Writes text in UTF-8 for a program as it is, and for a terminal as everything else."""
    if sys.stdout.isatty() or not hasattr(sys.stdout, "buffer"):
        print(content.decode(), end="")
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.flush()


def _made_visible(stream: TextIO) -> TextIO:
    # Without a file, as under pythonw, or with one that a test put there.
    return VisibleStream(stream) if isinstance(stream, io.TextIOWrapper) else stream

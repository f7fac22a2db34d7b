"""Standard output and error that escape control characters.

Escaping happens where text leaves the process, so every message and table is covered.
"""

import io
import sys
from typing import TextIO

from fleetrank.foundation.errors import visible


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


def _made_visible(stream: TextIO) -> TextIO:
    # The stream has no file under pythonw; a test may also have replaced it.
    return VisibleStream(stream) if isinstance(stream, io.TextIOWrapper) else stream

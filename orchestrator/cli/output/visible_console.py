"""A Rich console that escapes text from files and sends only Rich's own control codes."""

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fleetrank.foundation.visible_text import visible
from fleetrank.orchestrator.cli.output.visible_stream import VisibleStream


class VisibleConsole(Console):
    """Draws on standard output."""

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

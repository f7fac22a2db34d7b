"""A command that works without a word says what it does."""

import io
import threading

import pytest
from wording import has

from fleetrank.foundation.reading_beside import pause_between_steps
from fleetrank.orchestrator.cli.silence import never_silent
from fleetrank.orchestrator.cli.visible_streams import VisibleStream


class Said(io.StringIO):
    """Standard error that notices its first line."""

    has_line = threading.Event()

    def write(self, text: str) -> int:
        """Writes text."""
        number = super().write(text)
        if "\n" in text:
            self.has_line.set()
        return number


def test_silent_work_names_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", said := Said())
    pause_between_steps("makes the table transfer")
    with never_silent(["report", "build"], 0.01):
        assert said.has_line.wait(60)
    assert has(said.getvalue(), "fleetrank report", "makes the table transfer", "so far")


@pytest.mark.parametrize("words", [["report", "serve"], ["sweep", "run"], []])
def test_what_tells_its_progress_itself_is_not_watched(words: list[str]) -> None:
    threads = threading.active_count()
    with never_silent(words, 60):
        assert threading.active_count() == threads


def test_output_is_a_word() -> None:
    stream = VisibleStream(io.TextIOWrapper(io.BytesIO()))
    before = stream.wrote_s
    stream.write("a word")
    assert stream.wrote_s > before

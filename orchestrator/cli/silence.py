"""Says on standard error what a command does, each time that it has said nothing for 5 s."""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from fleetrank.foundation.reading_beside import current_step
from fleetrank.foundation.wording import duration

SILENCE_S = 5.0
"""Longer than this without output looks like a hang."""
_TELL_THEMSELVES = (["sweep"], ["run"], ["ab"], ["report", "serve"])
"""Commands that show their progress, or wait for others."""


@contextmanager
def never_silent(words: Sequence[str], silence_s: float = SILENCE_S) -> Iterator[None]:
    """Watches the block: output of this process counts as a word, where it is a `VisibleStream`.

    Args:
        words: of the command line, without the shared options.
        silence_s: seconds.
    """
    done = threading.Event()
    is_watched = words and not any(list(words[: len(one)]) == one for one in _TELL_THEMSELVES)
    if is_watched:
        watch = (words[0], done, silence_s)
        threading.Thread(target=_watch, args=watch, daemon=True, name="silence").start()
    try:
        yield
    finally:
        done.set()


def _watch(command: str, done: threading.Event, silence_s: float) -> None:
    began_s = said_s = perf_counter()
    while not done.wait(max(said_s + silence_s - perf_counter(), 0)):
        wrote_s = max(getattr(one, "wrote_s", 0.0) for one in (sys.stdout, sys.stderr))
        if wrote_s <= said_s:
            text = f"{current_step() or 'works'}, {duration(perf_counter() - began_s)} so far"
            print(f"fleetrank {command}: {text}", file=sys.stderr, flush=True)
            wrote_s = perf_counter()
        said_s = wrote_s

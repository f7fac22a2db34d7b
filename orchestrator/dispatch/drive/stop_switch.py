"""Ctrl-C once: finish what runs, then stop. Twice: stop now."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = "stopping when what runs is stored; once more stops now"
"""What the user is told after the first Ctrl-C."""


class StopSwitch:
    """Counts how often somebody asked to stop; read by the controller between two steps."""

    def __init__(self) -> None:
        self._n_pressed = 0

    def press(self, *, is_urgent: bool = False) -> None:
        """Asks to stop; the second time, or an urgent one, means now."""
        self._n_pressed += 2 if is_urgent else 1

    @property
    def is_stopping(self) -> bool:
        """Finish what runs and begin nothing."""
        return self._n_pressed >= 1

    @property
    def is_now(self) -> bool:
        """Do not wait for what runs."""
        return self._n_pressed >= 2


@contextmanager
def listening(switch: StopSwitch) -> Iterator[None]:
    """Lets Ctrl-C press the switch, and SIGTERM press it urgently, while the block runs.

    Signals can be caught in the main thread only; the former handlers come back at the end.
    """

    def on_signal(number: int, _frame: FrameType | None) -> None:
        switch.press(is_urgent=number == signal.SIGTERM)

    numbers = (signal.SIGINT, signal.SIGTERM)
    former = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)

"""Ctrl-C once: finish the running repeats, then stop. Twice: stop now."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopSwitch:
    """Counts the requests to stop; the controller reads it between two steps."""

    def __init__(self) -> None:
        self._n_pressed = 0

    def press(self, *, is_urgent: bool = False) -> None:
        """Requests a stop; the second request, or an urgent one, means stop now."""
        self._n_pressed += 2 if is_urgent else 1

    @property
    def is_stopping(self) -> bool:
        """Whether running attempts may finish and no new one may start."""
        return self._n_pressed >= 1

    @property
    def is_now(self) -> bool:
        """Whether running attempts are ended now."""
        return self._n_pressed >= 2


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Inside the block, SIGTERM raises `KeyboardInterrupt`; only the main thread can catch it."""
    former = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


@contextmanager
def listening(switch: StopSwitch) -> Iterator[None]:
    """Inside the block, Ctrl-C presses the switch and SIGTERM presses it urgently.

    Only the main thread can catch signals. The previous handlers are restored at the end.
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

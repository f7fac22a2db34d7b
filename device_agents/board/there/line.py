"""The connection to the host, as a command on a board sees it: its standard input."""

import threading
from time import monotonic
from typing import BinaryIO

ACKNOWLEDGED = b"ok\n"
"""The reply has arrived."""
FINISH = b"finish\n"
"""The round is to end after its current blocks."""


class Line:
    """What arrives on standard input while a command runs, and its end."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._gone = threading.Event()
        self._acknowledged = threading.Event()
        self._finish = threading.Event()

    def watch(self) -> None:
        """Starts to read words until the end."""
        threading.Thread(target=self._hear, daemon=True).start()

    def is_gone(self) -> bool:
        """Whether the connection has ended."""
        return self._gone.is_set()

    def wants_finish(self) -> bool:
        """Whether the round is to end after its current blocks."""
        return self._finish.is_set()

    def wait_acknowledged(self, limit_s: float) -> bool:
        """Waits for the acknowledgement; false if the connection ends or the time is over."""
        deadline_s = monotonic() + limit_s
        while monotonic() < deadline_s and not self._gone.is_set():
            if self._acknowledged.wait(POLL_S):
                return True
        return self._acknowledged.is_set()

    def _hear(self) -> None:
        while words := self._stream.readline():
            (self._finish if words == FINISH else self._acknowledged).set()
        self._gone.set()


POLL_S = 0.2

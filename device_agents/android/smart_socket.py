"""One connection to the adb server. Every wait on it ends at a deadline.

adbutils is not used. Its client starts another server on the default port if none answers, its
transfers wait without limit, its `send` may send half, and a dropped shell looks finished.

Source: `docs/dev/services.md` and `docs/dev/protocol.md` of packages/modules/adb: a request is its
length in four hexadecimal digits and its text; the answer is OKAY, or FAIL and a block.
"""

import socket
import time
from types import TracebackType

from fleetrank.device_agents.android.adb_text import shown
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.errors import (
    PermanentError,
    StoppedError,
    TimedOutError,
    TransientError,
)

LOST_REMEDY = "check the cable, the hub and the phone; the repeat will be retried"
POLL_S = 0.1
"""How often a wait checks the stop request: fast enough for Ctrl-C."""
MAX_REQUEST_BYTES = 0xFFFF
"""The length has four hexadecimal digits."""
CHUNK_BYTES = 64 * 1024


class RefusedRequestError(Exception):
    """The server or the phone answered FAIL; the argument is its text."""


class SmartSocket:
    """A connection to an adb server; a context manager."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float,
        stop_requested: StopRequested = never_stop,
    ) -> None:
        """Connects.

        Args:
            host: of the server, a name or an address.
            port: of the server.
            timeout_s: for all operations on this connection together.
            stop_requested: asked while waiting.

        Raises:
            OSError: no server answers there.
        """
        self._timeout_s = timeout_s
        self._deadline_ns = time.perf_counter_ns() + int(timeout_s * 1e9)
        self._stop_requested = stop_requested
        self._socket = socket.create_connection((host, port), timeout=max(timeout_s, POLL_S))
        self._socket.settimeout(POLL_S)
        # Requests are small and each waits for its answer, so none may wait for a fuller packet.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "SmartSocket":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; the server then ends the service on the phone."""
        self._socket.close()

    def request(self, service: str) -> None:
        """Asks for a service and waits until it is granted.

        Raises:
            RefusedRequestError: the service was rejected.
            TransientError: the connection ended.
            TimedOutError: no answer by the deadline.
        """
        payload = service.encode("utf-8", errors="surrogateescape")
        if len(payload) > MAX_REQUEST_BYTES:
            raise PermanentError(
                f"a request of {len(payload)} bytes is too long for adb",
                f"use shorter names; the limit is {MAX_REQUEST_BYTES} bytes",
            )
        self.send(f"{len(payload):04x}".encode() + payload)
        self.expect_okay()

    def expect_okay(self) -> None:
        """Reads OKAY, or raises an error with the server's message; see `request`."""
        answer = self.receive_exactly(4)
        if answer == b"FAIL":
            raise RefusedRequestError(self.read_block())
        if answer != b"OKAY":
            raise TransientError(
                f"the adb server answers {shown(repr(answer))} instead of OKAY",
                "check that this port belongs to an adb server",
            )

    def read_block(self) -> str:
        """Reads a text that follows its length."""
        digits = self.receive_exactly(4)
        try:
            length = int(digits, 16)
        except ValueError as error:
            raise TransientError(
                f"the adb server answers {shown(repr(digits))} instead of a length",
                "check that this port belongs to an adb server",
            ) from error
        return self.receive_exactly(length).decode("utf-8", errors="replace")

    def send(self, data: bytes) -> None:
        """Sends all data.

        Raises:
            TransientError: the other side closed the connection.
            TimedOutError: the other side accepts no more data before the deadline.
        """
        rest = memoryview(data)
        while rest:
            self._check_time()
            try:
                rest = rest[self._socket.send(rest) :]
            except TimeoutError:
                continue
            except OSError as error:
                raise _dropped() from error

    def receive(self, limit: int = CHUNK_BYTES) -> bytes:
        """Returns available data, at most `limit` bytes, and waits for the first; empty at the end.

        Raises:
            TransientError: the connection broke.
            TimedOutError: no data before the deadline.
        """
        while True:
            self._check_time()
            try:
                return self._socket.recv(limit)
            except TimeoutError:
                continue
            except OSError as error:
                raise _dropped() from error

    def receive_exactly(self, size: int) -> bytes:
        """Receives exactly `size` bytes; an earlier end raises `TransientError`."""
        received = bytearray()
        while len(received) < size:
            chunk = self.receive(min(size - len(received), CHUNK_BYTES))
            if not chunk:
                raise _dropped()
            received += chunk
        return bytes(received)

    def _check_time(self) -> None:
        if self._stop_requested():
            raise StoppedError("stopped on request", "resume the sweep")
        if time.perf_counter_ns() >= self._deadline_ns:
            raise TimedOutError(
                f"no end after {self._timeout_s:g} s",
                "check that the phone is awake and responds; raise timeout_s for slow models",
            )


def _dropped() -> TransientError:
    return TransientError("the connection to the phone was interrupted", LOST_REMEDY)

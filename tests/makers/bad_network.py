"""A network between two ends on this host that delays, is cut, and forgets connections.

`python bad_network.py PORT TO_HOST TO_PORT DELAY_S` is a tunnel: it carries until it is ended.
"""

import contextlib
import socket
import sys
import threading
import time
from typing import Self

CHUNK_BYTES = 1 << 16


class BadNetwork:
    """Forwards connections to one port; a context manager."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = None
        self._ends: list[socket.socket] = []
        self._port = 0
        self._target = ("127.0.0.1", 0)
        self._delay_s = 0.0
        self._n_forgotten = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.cut()

    def lead_to(
        self, target: int, delay_s: float = 0.0, *, host: str = "127.0.0.1", port: int = 0
    ) -> str:
        """Opens it, at a free port or the given one; its address."""
        self._target, self._delay_s, self._port = (host, target), delay_s, port
        self.mend()
        return f"127.0.0.1:{self._port}"

    def mend(self) -> None:
        """Forwards again, from the same port."""
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Ends all connections, and refuses new ones."""
        ends, self._ends = self._ends, []
        for end in (self._listener, *ends):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def forget(self) -> None:
        """Carries nothing on the connections of now, and tells nobody, as a lost route does."""
        self._n_forgotten = len(self._ends)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _address = listener.accept()
                far = socket.create_connection(self._target)
                number = len(self._ends)
                self._ends += near, far
                for source, sink in ((near, far), (far, near)):
                    pump = threading.Thread(target=self._pump, args=(source, sink, number))
                    pump.daemon = True
                    pump.start()

    def _pump(self, source: socket.socket, sink: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                time.sleep(self._delay_s)
                if number >= self._n_forgotten:
                    sink.sendall(data)
            if number >= self._n_forgotten:
                sink.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    opened, host, target, delay = sys.argv[1:]
    BadNetwork().lead_to(int(target), float(delay), host=host, port=int(opened))
    threading.Event().wait()

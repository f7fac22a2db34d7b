"""The process of a board's host: it answers calls at a socket, and ends when it has no work."""

import contextlib
import json
import os
import socket
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import BinaryIO

from fleetrank.device_agents.board.host_calls import HOST_CALLS
from fleetrank.device_agents.board.there.board_host import BoardHost
from fleetrank.device_agents.board.there.join import (
    GO,
    LEAVING,
    REPLY_MARK,
    SOCKET,
    this_program,
)
from fleetrank.device_agents.board.there.readings import read_boot
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.errors import DamagedFileError
from fleetrank.foundation.codec import from_plain, to_plain
from fleetrank.foundation.lease import give_up_at_once, open_lease, wait_for_lock

_IDLE_S = 300.0
"""Between two repeats of a sweep the driver can export a model; the start takes a second."""
_LOOK_S = 5.0
"""How often it looks whether it is needed; each time takes microseconds."""


def run_host(folder: Path) -> None:
    """Answers calls, unless another process of this folder does it already.

    Raises:
        OSError: the folder cannot be written.
    """
    os.umask(0o077)  # only this user may call it
    with open_lease(folder / "host.lock") as lock:
        if wait_for_lock(lock, give_up_at_once):
            HostProcess(folder).run()


class HostProcess:
    """Answers one call per connection, each in a thread.

    Args:
        folder: of fleetrank on this board.
    """

    def __init__(self, folder: Path) -> None:
        self._host = BoardHost(folder)
        self._path = folder / SOCKET
        self._lock = threading.Lock()
        self._n_joined = 0
        self._is_leaving = False

    def run(self) -> None:
        """Answers until it has had no work for a while, or its folder was removed."""
        self._path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._path))
            listener.listen()
            listener.settimeout(_LOOK_S)
            used_s = monotonic()
            while not self._is_leaving and monotonic() - used_s < _IDLE_S:
                with contextlib.suppress(TimeoutError):
                    line, _ = listener.accept()
                    threading.Thread(target=self._serve, args=(line,), daemon=True).start()
                    used_s = monotonic()
                if self._n_joined or not self._host.is_idle(0.0):
                    used_s = monotonic()
                elif not self._path.exists():
                    return

    def _serve(self, line: socket.socket) -> None:
        with self._lock:
            self._n_joined += 1
        # The other side can end at any time; then nobody needs the answer.
        try:
            with line, line.makefile("rb") as stream, contextlib.suppress(OSError, ValueError):
                if json.loads(stream.readline()) != this_program():
                    line.sendall(self._answer_to_other())
                    return
                line.sendall(GO)
                reply = json.dumps({**self._carry_out(stream, line), "boot": read_boot()})
                line.sendall(f"{REPLY_MARK}{reply}\n".encode())
        finally:
            with self._lock:
                self._n_joined -= 1

    def _answer_to_other(self) -> bytes:
        """To a driver with other code or another Python, whose own host is to run here."""
        with self._lock:
            if self._n_joined > 1 or not self._host.is_idle(0.0):
                return b"another version of fleetrank, or another Python, measures there\n"
            self._is_leaving = True
        # The lease has to be free before the other one starts.
        self._path.unlink(missing_ok=True)
        return LEAVING

    def _carry_out(self, stream: BinaryIO, line: socket.socket) -> "dict[str, object]":
        try:
            request = json.loads(stream.readline())
            method = request["method"]
            hints = HOST_CALLS[method]
            arguments = [from_plain(*one) for one in zip(hints, request["arguments"], strict=True)]
            if method == "receive":
                arguments = [replace(arguments[0], content=_content(stream, request["n_bytes"]))]
            if method == "infer":
                arguments.append(partial(_is_gone, line))
            answer = getattr(self._host, method)(*arguments)
            return {"answer": to_plain(tuple(answer) if isinstance(answer, list) else answer)}
        except Exception as error:  # the driver is told of every error
            return {"error": to_plain(failure_from_error(error, None))}


def _content(stream: BinaryIO, n_bytes: int) -> bytes:
    content = stream.read(n_bytes)
    if len(content) != n_bytes:
        raise DamagedFileError("the line ended before the end of the file", "it is sent again")
    return content


def _is_gone(line: socket.socket) -> bool:
    """Whether the command that made this call has ended."""
    with contextlib.suppress(BlockingIOError):
        return not line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    return False

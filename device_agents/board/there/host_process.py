"""The process of a board's host: it answers calls at a socket, and ends when it has no work."""

import contextlib
import json
import os
import shutil
import socket
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import BinaryIO

from fleetrank.device_agents.board.host_calls import HOST_CALLS
from fleetrank.device_agents.board.there.board_host import BoardHost
from fleetrank.device_agents.board.there.join import GREETING, REPLY_MARK, SOCKET, host_folder
from fleetrank.device_agents.board.there.readings import read_boot
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.errors import DamagedFileError
from fleetrank.foundation.codec import from_plain, to_plain
from fleetrank.foundation.lease import give_up_at_once, is_locked, open_lease, wait_for_lock

_IDLE_S = 300.0
"""Between two repeats of a sweep the driver can export a model; the start takes a second."""
_LOOK_S = 5.0
"""How often it looks whether it is needed; each time takes microseconds."""
_HUNG_S = 60.0
"""An agent that has not returned so long after its time limit hangs."""
_LOCK = "host.lock"


def main() -> int:
    """Answers calls, unless another process does it already."""
    folder = host_folder()
    os.umask(0o077)  # only this user may call it
    with open_lease(folder / _LOCK) as lock:
        if wait_for_lock(lock, give_up_at_once):
            _remove_older(folder)
            HostProcess(folder).run()
    return 0


def _remove_older(folder: Path) -> None:
    """Removes what hosts of other code or another Python left, unless they run."""
    for other in folder.parent.glob("host-*"):
        if other != folder and not is_locked(other / _LOCK):
            shutil.rmtree(other, ignore_errors=True)


class HostProcess:
    """Answers one call per connection, each in a thread; `folder` is its own."""

    def __init__(self, folder: Path) -> None:
        self._host = BoardHost(folder.absolute())
        self._path = folder / SOCKET
        self._lock = threading.Lock()
        self._n_joined = 0

    def run(self) -> None:
        """Answers until it has had no work for a while, or its folder was removed."""
        self._path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._path))
            listener.listen()
            listener.settimeout(_LOOK_S)
            used_s = monotonic()
            while monotonic() - used_s < _IDLE_S and not self._host.overdue(_HUNG_S):
                with contextlib.suppress(TimeoutError):
                    line, _ = listener.accept()
                    with self._lock:
                        self._n_joined += 1
                    threading.Thread(target=self._serve, args=(line,), daemon=True).start()
                if self._n_joined or not self._host.is_idle(0.0):
                    used_s = monotonic()
                elif not self._path.exists():
                    return

    def _serve(self, line: socket.socket) -> None:
        try:
            # The other side can end at any time; then the answer is not needed.
            with contextlib.suppress(OSError), line, line.makefile("rb") as stream:
                line.sendall(GREETING)
                reply = json.dumps({**self._carry_out(stream, line), "boot": read_boot()})
                line.sendall(f"{REPLY_MARK}{reply}\n".encode())
        finally:
            with self._lock:
                self._n_joined -= 1

    def _carry_out(self, stream: BinaryIO, line: socket.socket) -> "dict[str, object]":
        try:
            request = json.loads(stream.readline())
            method = request["method"]
            pairs = zip(HOST_CALLS[method], request["arguments"], strict=True)
            arguments = [from_plain(*pair) for pair in pairs]
            if method == "receive":
                arguments = [replace(arguments[0], content=_content(stream, request["n_bytes"]))]
            if method == "infer":
                arguments.append(partial(_is_gone, line))
            answer = getattr(self._host, method)(*arguments)
            return {"answer": answer if isinstance(answer, list) else to_plain(answer)}
        except Exception as error:  # the driver gets every error
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

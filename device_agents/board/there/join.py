"""Joins a command over ssh to the board's host, and starts that process if there is none.

It runs for every call, so it imports a few modules of the standard library and nothing of ours.
"""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic, sleep

REPLY_MARK = "fleetrank-board:"
"""Begins the line of a reply: a login shell can print what it likes before it."""
SOCKET = "host.sock"
GO, LEAVING = b"go\n", b"leaving\n"
_LOG = "host.log"
_START_S = 50.0
"""PyPI's NumPy takes seconds from a memory card; a call gives a board a minute."""
_ANSWER_S = 30.0
"""A host that does not greet for so long hangs, and is replaced."""
_PAUSE_S = 0.05
_MOST_BYTES = 500


def main() -> int:
    """Carries bytes between standard input and output and the host, until either ends."""
    try:
        line = _joined(Path(sys.argv[0]).parents[2])
    except (OSError, _RefusedError) as error:
        word = "busy" if isinstance(error, _RefusedError) else "problem"
        print(REPLY_MARK + json.dumps({word: str(error)}), flush=True)  # noqa: T201
        return 0
    threading.Thread(target=_forward, args=(line,), daemon=True).start()
    try:
        while chunk := line.recv(1 << 16):
            sys.stdout.buffer.write(chunk)
        sys.stdout.flush()
    except OSError:
        pass
    # A thread that waits for input must not hold the process.
    os._exit(0)


def this_program() -> "dict[str, str]":
    """Which code and which Python this process runs; those of a host must be the same."""
    return {"code": Path(sys.argv[0]).absolute().parent.name, "python": sys.executable}


class _RefusedError(Exception):
    """The host runs other code, and is in use."""


def _forward(line: socket.socket) -> None:
    try:
        while chunk := os.read(0, 1 << 16):
            line.sendall(chunk)
    except OSError:
        pass
    # The connection has ended, and the host sees it.
    if not chunk:
        os._exit(0)


def _joined(folder: Path) -> socket.socket:
    """A connection to a host of this program, which has greeted."""
    started = None
    until_s = monotonic() + _START_S
    while monotonic() < until_s:
        line = socket.socket(socket.AF_UNIX)
        answer = _greeted(line, folder)
        if answer == GO:
            line.settimeout(None)
            return line
        line.close()
        if answer not in (b"", LEAVING):
            raise _RefusedError(answer.decode(errors="replace").strip())
        if started is not None and started.poll() not in (None, 0):
            said = (folder / _LOG).read_bytes()[-_MOST_BYTES:].decode(errors="replace")
            raise OSError(f"the host of the board does not start: {said.strip()}")
        if answer == b"" and (started is None or started.poll() == 0):
            started = _start(folder)
        sleep(_PAUSE_S)
    raise OSError(f"the host of the board did not start within {_START_S:g} s")


def _greeted(line: socket.socket, folder: Path) -> bytes:
    """What the host answers; empty if there is none."""
    answer = b""
    line.settimeout(_ANSWER_S)
    try:
        line.connect(str(folder / SOCKET))
        line.sendall(json.dumps(this_program()).encode() + b"\n")
        while not answer.endswith(b"\n") and len(answer) < _MOST_BYTES:
            if not (byte := line.recv(1)):
                return b""
            answer += byte
    except TimeoutError:
        packed = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        os.kill(struct.unpack("3i", packed)[0], signal.SIGKILL)
        return b""
    except (FileNotFoundError, ConnectionError):
        return b""
    return answer


def _start(folder: Path) -> "subprocess.Popen[bytes]":
    with (folder / _LOG).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, sys.argv[0], "host"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
        )  # fmt: skip

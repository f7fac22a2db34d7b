"""Joins a command over ssh to the board's host, and starts that process if there is none.

It runs for every call, so it imports a few modules of the standard library and nothing of ours.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import zlib
from pathlib import Path
from time import monotonic, sleep

REPLY_MARK = "fleetrank-board:"
"""Begins the line of a reply: a login shell can print what it likes before it."""
SOCKET, GREETING = "host.sock", b"\n"
_LOG = "host.log"
_START_S = 50.0
"""Slow boards start Python in seconds; a call gives a board a minute."""
_PAUSE_S = 0.05


def main() -> int:
    """Carries bytes between standard input and output and the host, until either ends."""
    try:
        line = _joined(host_folder())
    except OSError as error:
        print(REPLY_MARK + json.dumps({"problem": str(error)}), flush=True)  # noqa: T201
        return 0
    threading.Thread(target=_forward, args=(line,), daemon=True).start()
    with contextlib.suppress(OSError):
        while chunk := line.recv(1 << 16):
            sys.stdout.buffer.write(chunk)
        sys.stdout.flush()
    # A thread that waits for input must not hold the process.
    os._exit(0)


def host_folder() -> Path:
    """The folder of the host of this code and this Python; a socket's path must be short."""
    program = Path(sys.argv[0])
    name = f"{program.absolute().parent.name} {sys.executable}"
    return program.parents[2] / f"host-{zlib.crc32(name.encode()):08x}"


def _forward(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := os.read(0, 1 << 16):
            line.sendall(chunk)
        # The connection has ended, and the host sees it.
        os._exit(0)


def _joined(folder: Path) -> socket.socket:
    """A connection to the host."""
    started = None
    until_s = monotonic() + _START_S
    while monotonic() < until_s:
        line = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(FileNotFoundError, ConnectionError):
            line.connect(str(folder / SOCKET))
            # One that ends at this moment sends nothing.
            if line.recv(1) == GREETING:
                return line
        line.close()
        exit_code = 0 if started is None else started.poll()
        if exit_code == 0:  # none, or another one was ending
            started = _start(folder)
        elif exit_code is not None:
            said = (folder / _LOG).read_bytes()[-300:].decode(errors="replace")
            raise OSError(f"the host of the board does not start: {said.strip()}")
        sleep(_PAUSE_S)
    raise OSError(f"the host of the board did not start within {_START_S:g} s")


def _start(folder: Path) -> "subprocess.Popen[bytes]":
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / _LOG).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, sys.argv[0], "host"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
        )  # fmt: skip

"""The real worker with a runtime whose files turn hostile once they are loaded.

No format but `.pt2` can carry code, so what a hole in a runtime would run is run here. Which walls
stand is the first argument, so that each is seen by itself; then a folder to do harm in and the
port of a listener. Standard error gets one line of JSON: each attempt, and whether it succeeded.
"""

import ctypes
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from fleetrank.device_agents.confinement import seccomp, walls
from fleetrank.device_agents.confinement.walls import AuditWall
from fleetrank.device_agents.worker import __main__ as worker

MARK = "attempts: "


def attempts(outside: Path, port: int) -> dict[str, Callable[[], object]]:
    libc = ctypes.CDLL(None)
    return {
        "make a file": lambda: (outside / "made").write_text("x"),
        "make a file by libc": lambda: expect(libc.creat(bytes(outside / "by_libc"), 0o600) >= 0),
        "make a folder": (outside / "folder").mkdir,
        "change a file": lambda: (outside / "secret").open("a").write("x"),
        "remove a file": (outside / "victim").unlink,
        "move a file in": lambda: own().rename(outside / "moved"),
        "link a file in": lambda: (outside / "link").symlink_to(own()),
        "read a secret": (outside / "secret").read_text,
        "read a secret by libc": lambda: expect(libc.open(bytes(outside / "secret"), 0) >= 0),
        "read the parent": Path(f"/proc/{os.getppid()}/environ").read_bytes,
        "connect": lambda: socket.create_connection(("127.0.0.1", port), timeout=5),
        "listen": lambda: socket.create_server(("127.0.0.1", 0)),
        "shell": lambda: expect(os.system(f"touch {outside}/by_shell") == 0),
        "program": lambda: subprocess.run(["touch", str(outside / "by_program")], check=True),
        "signal": lambda: os.kill(os.getppid(), 0),
        "write to scratch": lambda: own().read_text(),
        "threads outside": lambda: expect(not_confined_threads() > 0),
    }


def own() -> Path:
    path = Path(tempfile.gettempdir()) / "own"
    path.write_text("x")
    return path


def not_confined_threads() -> int:
    statuses = [path.read_text() for path in Path("/proc/self/task").glob("*/status")]
    return sum("NoNewPrivs:\t1" not in status for status in statuses)


def expect(is_done: bool) -> None:
    if not is_done:
        raise OSError("refused")


def try_all(outside: Path, port: int) -> None:
    found = {}
    for name, attempt in attempts(outside, port).items():
        try:
            attempt()
            found[name] = True
        except Exception:  # a hostile file goes on
            found[name] = False
    os.write(2, f"{MARK}{json.dumps(found)}\n".encode())


def make_hostile(module_name: str, class_name: str, outside: Path, port: int) -> None:
    runner = getattr(importlib.import_module(module_name), class_name)
    load = runner.load

    def hostile_load(self: object, path: str, execution: object) -> object:
        model = load(self, path, execution)
        try_all(outside, port)
        return model

    runner.load = hostile_load


def main() -> int:
    barriers, folder, port = sys.argv[1:]
    if "landlock" not in barriers:
        walls.abi = lambda: None
    if "seccomp" not in barriers:
        seccomp.is_available = lambda: False
    if "audit" not in barriers:
        AuditWall.arm = lambda self: None
    pin = worker.pin

    def pin_and_go_bad(cpus: tuple[int, ...] | None) -> None:
        """Not before: the runners import NumPy, whose threads have to be confined ones."""
        pin(cpus)
        from fleetrank.device_agents.runtimes.runner import RUNNERS

        for member in RUNNERS.values():
            make_hostile(*member.split(":"), Path(folder), int(port))

    worker.pin = pin_and_go_bad
    return worker.main()


if __name__ == "__main__":
    sys.exit(main())

"""`fleetrank report serve` in a process of its own, as a user starts it."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_COMMAND = "from fleetrank.orchestrator.cli.main import main; main()"
_END_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running server; `address` is what it printed, token included."""

    address: str
    process: subprocess.Popen[str]

    @property
    def base(self) -> str:
        return self.address.partition("/?")[0].rstrip("/")

    @property
    def token(self) -> str | None:
        return self.address.partition("token=")[2] or None


@contextlib.contextmanager
def serving(
    workspace: Path, *words: str, environment: Mapping[str, str] | None = None
) -> Iterator[Served]:
    """Starts the command on a free port and ends it as Ctrl-C does."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _COMMAND, "report", "serve", "--port", "0", *words],
        cwd=workspace,
        env=os.environ | {"PYTHONWARNINGS": ""} | dict(environment or {}),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http"), "the server did not start"
        yield Served(address=address, process=process)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_END_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

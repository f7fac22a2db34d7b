"""`devices virtual` starts phones, and ends them by Ctrl-C and SIGTERM."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from adb_bench import adb, adb_of_the_wheel, private_server
from daily import daily

pytestmark = pytest.mark.adb


def ignore_ctrl_c() -> None:
    """As a shell does for the background jobs of a script."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize(
    ("number", "setup"),
    daily(
        itertools.product((signal.SIGINT, signal.SIGTERM), (None, ignore_ctrl_c)),
        (signal.SIGINT, None),
    ),
)
def test_phones_are_started_connected_and_taken_off_again(
    tmp_path: Path, number: int, setup: Callable[[], None] | None
) -> None:
    binary = adb_of_the_wheel()
    home = tmp_path / "home"
    home.mkdir()
    with private_server(binary, home) as server:
        environment = dict(os.environ)
        environment |= {"HOME": str(home), "ANDROID_ADB_SERVER_PORT": str(server.port)}
        environment |= {"PYTHONUNBUFFERED": "1", "FLEETRANK_ADB": str(binary)}
        environment |= {"TMPDIR": str(tmp_path)}
        words = "from fleetrank.orchestrator.cli.main import main; main()"
        command = [sys.executable, "-c", words, "devices", "virtual", "--count", "4"]
        with subprocess.Popen(
            command,
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=setup,  # noqa: PLW1509 - the test has no threads
        ) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline()]
            while "Ctrl-C" not in lines[-1]:
                assert lines[-1], lines
                lines.append(process.stdout.readline())
            addresses = [line.split()[0] for line in lines[:4]]
            assert adb(server, "devices").stdout.decode().count("\tdevice") == 4
            assert f"devices add --adb {addresses[0]} --name virtual-pixel-8" in "".join(lines)
            assert f"devices add --adb {addresses[3]} --name virtual-pixel-8-2" in "".join(lines)
            process.send_signal(number)
            try:
                process.wait(60)
            finally:
                process.kill()  # else leaving the block would wait for ever
        assert "device" not in adb(server, "devices").stdout.decode().partition("\n")[2]
        assert not list(tmp_path.glob("fleetrank-phones-*"))

"""`python -m phone_farm` serves phones, and takes them off adb again when it is ended."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from adb_bench import adb_of_the_wheel, private_server

from fleetrank.device_agents.android.adb_server import AdbServer

pytestmark = [pytest.mark.adb, pytest.mark.thorough]
TESTS = Path(__file__).parents[2]


def devices(server: AdbServer) -> str:
    """As the real client lists them."""
    command = [server.adb, "-P", str(server.port), "devices"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_phones_are_connected_and_taken_off_again(tmp_path: Path, number: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with private_server(adb_of_the_wheel(), home) as server:
        environment = os.environ | {
            "HOME": str(home),
            "ANDROID_ADB_SERVER_PORT": str(server.port),
            "FLEETRANK_ADB": str(server.adb),
            "PYTHONPATH": str(TESTS),
            "TMPDIR": str(tmp_path),
        }
        with subprocess.Popen(
            [sys.executable, "-m", "phone_farm", "--count", "2"],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(4)]
            assert "Ctrl-C" in lines[-1]
            assert devices(server).count("\tdevice") == 2
            assert f"--adb {lines[0].split()[0]} --tool benchmark_model=" in lines[2]
            process.send_signal(number)
            try:
                assert process.wait(60) == 0
            finally:
                process.kill()  # else leaving the block would wait for ever
        assert "device" not in devices(server).partition("\n")[2]
        assert not list(tmp_path.glob("fleetrank-phones-*"))

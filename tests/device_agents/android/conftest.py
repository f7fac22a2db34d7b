"""A private adb server, in both versions that are supported, and a virtual phone on it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from adb_bench import AdbBench, free_port, open_bench

from device_agents.android.adb_server import AdbServer, find_adb

DEBIANS_ADB = Path("/usr/lib/android-sdk/platform-tools/adb")
"""Version 29, the oldest that is supported."""


@pytest.fixture(scope="session", params=["wheel", "debian"])
def adb_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AdbServer]:
    """A server on a port, in a home and with a key of its own."""
    adb = find_adb() if request.param == "wheel" else DEBIANS_ADB
    if not adb.is_file():
        pytest.skip(f"{adb} is not installed")
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("ADB_LIBUSB", "0")  # starts at once instead of in 3 s
        patch.setenv("ADB_LOCAL_TRANSPORT_MAX_PORT", "5554")  # looks for no emulators
        server = AdbServer(adb, free_port())
        server.start()
        yield server
        kill = [str(adb), "-P", str(server.port), "kill-server"]
        subprocess.run(kill, check=False, timeout=30, capture_output=True)


@pytest.fixture
def bench(adb_server: AdbServer, tmp_path: Path) -> Iterator[AdbBench]:
    """A phone of its own for each test, connected."""
    with open_bench(adb_server, tmp_path / "phones", Path.home()) as opened:
        yield opened

"""One virtual phone behind a private server of the real adb."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetrank.device_agents.android.adb.adb_server import AdbServer
from fleetrank.device_agents.android.adb.phone import Phone
from fleetrank.device_agents.contract.registration import VirtualMode
from fleetrank.device_agents.virtual_phone.daemon.farm import FarmedPhone, FarmSpec, VirtualFarm
from fleetrank.device_agents.virtual_phone.handset.faults import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class AdbBench:
    """A phone, and the farm that can do it harm."""

    farm: VirtualFarm
    farmed: FarmedPhone
    phone: Phone

    def inject(self, fault: Fault) -> None:
        self.farm.inject(0, fault)

    def clear(self, fault: Fault) -> None:
        self.farm.clear(0, fault)


@contextmanager
def private_server(adb: Path, home: Path) -> Iterator[AdbServer]:
    """A server on a port, in a home and with a key of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("ADB_LIBUSB", "0")  # starts at once instead of in 3 s
        patch.setenv("ADB_LOCAL_TRANSPORT_MAX_PORT", "5554")  # looks for no emulators
        server = AdbServer(adb, free_port())
        with pytest.MonkeyPatch.context() as started:
            started.setenv("TMPDIR", str(home))  # for its log
            server.start()
        yield server
        kill = [str(adb), "-P", str(server.port), "kill-server"]
        subprocess.run(kill, check=False, timeout=30, capture_output=True)


@contextmanager
def open_bench(
    server: AdbServer,
    folder: Path,
    home: Path,
    mode: VirtualMode = VirtualMode.CANNED,
    profile: str = "pixel-8",
) -> Iterator[AdbBench]:
    """Starts one phone and connects to it."""
    key_file = home / ".android/adbkey.pub"
    spec = FarmSpec(folder=folder, key_file=key_file, mode=mode, profiles=(profile,))
    with VirtualFarm(spec) as farm:
        farmed = farm.phones[0]
        server.connect(farmed.address)
        yield AdbBench(farm=farm, farmed=farmed, phone=Phone(server, farmed.address))
        server.disconnect(farmed.address)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

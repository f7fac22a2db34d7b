"""One virtual phone behind a private server of the real adb."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from device_agents.android.adb_server import AdbServer
from device_agents.android.phone import Phone
from device_agents.virtual_phone.farm import FarmedPhone, FarmSpec, VirtualFarm
from device_agents.virtual_phone.faults import Fault


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
def open_bench(server: AdbServer, folder: Path, home: Path) -> Iterator[AdbBench]:
    """Starts one phone and connects to it."""
    spec = FarmSpec(folder=folder, key_file=home / ".android/adbkey.pub")
    with VirtualFarm(spec) as farm:
        farmed = farm.phones[0]
        server.connect(farmed.address)
        yield AdbBench(farm=farm, farmed=farmed, phone=Phone(server, farmed.address))
        server.disconnect(farmed.address)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

"""The real adb in both supported versions, each with a server, a home and a key of its own."""

import importlib.util
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.virtual_phone.daemon.farm import FarmSpec, VirtualFarm

ADB_29 = Path("/usr/lib/android-sdk/platform-tools/adb")
LIMIT_S = 20.0


def adb_of_the_wheel() -> Path | None:
    spec = importlib.util.find_spec("adbutils")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "binaries/adb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adb:
    """One client and its server."""

    binary: Path
    home: Path
    port: int

    @property
    def key_file(self) -> Path:
        return self.home / ".android/adbkey.pub"

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.PIPE}
        return subprocess.Popen([self.binary, *words], env=self._environment(), **pipes)

    def run(
        self, *words: str, stdin: bytes = b"", limit_s: float = LIMIT_S
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [self.binary, *words],
            env=self._environment(),
            input=stdin,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(self.home),  # for the server's log
            "ANDROID_ADB_SERVER_PORT": str(self.port),
            "ADB_LIBUSB": "0",  # starts at once instead of in 3 s
            "ADB_LOCAL_TRANSPORT_MAX_PORT": "5554",  # looks for no emulators
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class OnePhone:
    """A connected phone and the client that sees it."""

    adb: Adb
    farm: VirtualFarm
    address: str

    @property
    def folder(self) -> Path:
        return self.farm.phones[0].folder

    def run(
        self, *words: str, stdin: bytes = b"", limit_s: float = LIMIT_S
    ) -> subprocess.CompletedProcess[bytes]:
        return self.adb.run("-s", self.address, *words, stdin=stdin, limit_s=limit_s)

    def shell(self, *words: str) -> str:
        return self.run("shell", *words).stdout.decode()


def serve_adb(binary: Path, home: Path) -> Iterator[Adb]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    adb = Adb(binary=binary, home=home, port=port)
    home.mkdir(exist_ok=True)
    started = adb.run("start-server")
    assert started.returncode == 0, started.stderr
    yield adb
    adb.run("kill-server")


def connect(adb: Adb, folder: Path, *profiles: str) -> Iterator[OnePhone]:
    spec = FarmSpec(folder=folder, profiles=profiles, key_file=adb.key_file)
    with VirtualFarm(spec) as farm:
        address = farm.phones[0].address
        assert b"connected to" in adb.run("connect", address).stdout
        yield OnePhone(adb=adb, farm=farm, address=address)
        adb.run("disconnect", address)

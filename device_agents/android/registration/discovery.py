"""What adb on this host is and sees: its version, and phones connected or announced."""

import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.android.adb.adb_server import ADB_VARIABLE, AdbServer, find_adb
from fleetrank.device_agents.android.adb.adb_text import (
    REMEDIES,
    DeviceState,
    MdnsService,
    Transport,
)
from fleetrank.device_agents.android.adb.adb_text import SeenDevice as SeenPhone
from fleetrank.device_agents.contract.kind import HostCheck
from fleetrank.device_agents.contract.registration import SeenDevice
from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.foundation.errors import FleetError

_ANNOUNCED = "announced"
"""State of a phone that is announced on the network but not connected."""
_PAIRING = "_adb-tls-pairing._tcp"


class PhoneDiscoverer:
    """Asks this host's adb server, which is started if needed."""

    nothing_seen = (
        "adb lists no phone: connect one and enable USB debugging in its developer options, "
        "or try `fleetrank devices virtual`"
    )

    def discover(self) -> Sequence[SeenDevice]:
        """Lists the phones that adb finds, then those that are announced but not connected."""
        server = AdbServer()
        return phones_of(server.devices(), server.mdns_services())


def phones_of(
    connected: Sequence[SeenPhone], services: Iterable[MdnsService]
) -> tuple[SeenDevice, ...]:
    """One entry per phone; phones that are announced but not connected come last."""
    known = {phone.serial for phone in connected}
    announced = (
        service
        for service in services
        if service.address not in known and f"{service.name}.{service.kind}" not in known
    )
    return (*map(_connected, connected), *map(_announced, announced))


def _connected(phone: SeenPhone) -> SeenDevice:
    return SeenDevice(
        address=phone.serial,
        state=phone.state.value,
        transport=phone.transport.value,
        model=phone.model,
        remedy=None if phone.state is DeviceState.DEVICE else REMEDIES[phone.state],
    )


def _announced(service: MdnsService) -> SeenDevice:
    verb = "pair" if service.kind == _PAIRING else "connect"
    return SeenDevice(
        address=service.address,
        state=_ANNOUNCED,
        transport=Transport.MDNS.value,
        model=None,
        remedy=f"adb {verb} {shlex.quote(service.address)}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAdb:
    """One adb binary; `version` as in `AdbServer.version`."""

    path: Path
    version: str


def judge_adb(used: FoundAdb, on_path: FoundAdb | None) -> HostCheck:
    """Compares the adb used for measuring with the adb on PATH."""
    message = f"{used.version} at {used.path}"
    if on_path is None or on_path.version == used.version:
        return HostCheck(name="adb", message=message)
    return HostCheck(
        name="adb",
        message=f"{message}, but PATH has {on_path.version} at {on_path.path}; both share one "
        "server, started by the first one used",
        remedy=f"use only one: set {ADB_VARIABLE}={shlex.quote(str(on_path.path))}, or put the "
        "other first on PATH",
    )


def check_adb() -> Sequence[HostCheck]:
    """Finds adb in the same way as measuring and reads its version; starts no server."""
    try:
        adb = find_adb()
        used = FoundAdb(path=adb, version=AdbServer(adb).version())
    except MissingLibraryError as missing:
        return (HostCheck(name="adb", message=f"{missing.message} (only phones need it)"),)
    except FleetError as error:
        return (HostCheck(name="adb", message=error.message, remedy=error.remedy),)
    return (judge_adb(used, _adb_on_path()),)


def _adb_on_path() -> FoundAdb | None:
    path = shutil.which("adb")
    if path is None:
        return None
    try:
        return FoundAdb(path=Path(path), version=AdbServer(Path(path)).version())
    except FleetError:
        return None  # an adb that does not run cannot start a server

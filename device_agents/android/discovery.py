"""What adb on this host is and sees: its version, and phones connected or announced."""

import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fleetrank.device_agents.android.adb_address import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    find_address,
    parse_address,
)
from fleetrank.device_agents.android.adb_server import ADB_VARIABLE, AdbServer, find_adb
from fleetrank.device_agents.android.adb_text import MdnsService, Transport
from fleetrank.device_agents.android.phone_registration import SERVER
from fleetrank.device_agents.contract.kind import HostCheck, SeenDevice
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.foundation.errors import FleetError

_ANNOUNCED = "announced"
"""State of a phone that is announced on the network but not connected."""
_PAIRING = "_adb-tls-pairing._tcp"


class PhoneDiscoverer:
    """Asks this host's adb server, which is started if needed, and those that devices name."""

    nothing_seen = (
        "adb lists no phone: connect one and enable USB debugging in its developer options, "
        "or add a simulated one: `fleetrank devices add edge-sim --kind simulated`"
    )

    def discover(self, known: Sequence[Mapping[str, OptionValue]]) -> Sequence[SeenDevice]:
        """Lists the phones that adb finds, then those that are announced but not connected."""
        server = AdbServer()
        seen = list(phones_of(server.devices(), server.mdns_services()))
        if (server.host, server.port) != (DEFAULT_HOST, DEFAULT_PORT):
            # A device file must not depend on the variables of today.
            seen = [replace(one, options={SERVER: server.address}) for one in seen]
        for address in sorted({str(one[SERVER]) for one in known if SERVER in one}):
            try:
                named = AdbServer(server.adb, address=address)
                found = phones_of(named.devices(), named.mdns_services())
            except FleetError as error:
                # The phones of other servers are listed all the same.
                silent = SeenDevice(
                    address=address,
                    state="no answer",
                    transport="server",
                    model=None,
                    remedy=error.remedy,
                )
                found = (silent,)
            if (named.host, named.port) != (server.host, server.port):
                seen += (replace(one, options={SERVER: address}) for one in found)
        return seen

    def is_at(self, options: Mapping[str, OptionValue], seen: SeenDevice) -> bool:
        """Two servers can list different phones under one serial."""
        is_same_server = _address_of(options) == _address_of(seen.options)
        return is_same_server and options.get("serial") == seen.address


def _address_of(options: Mapping[str, OptionValue]) -> tuple[str, int]:
    """Of the server that these options name, or of the default one."""
    address = options.get(SERVER)
    return find_address() if address is None else parse_address(str(address), f"option {SERVER}")


def phones_of(
    connected: Sequence[SeenDevice], services: Iterable[MdnsService]
) -> tuple[SeenDevice, ...]:
    """One entry per phone; phones that are announced but not connected come last."""
    known = {phone.address for phone in connected}
    announced = (
        service
        for service in services
        if service.address not in known and f"{service.name}.{service.kind}" not in known
    )
    return (*connected, *map(_announced, announced))


def _announced(service: MdnsService) -> SeenDevice:
    verb = "pair" if service.kind == _PAIRING else "connect"
    return SeenDevice(
        address=service.address,
        state=_ANNOUNCED,
        transport=Transport.MDNS.value,
        model=None,
        remedy=f"adb {verb} {shlex.quote(service.address)}",
    )


FoundAdb = tuple[str, Path]
"""Version and path of one adb binary."""


def judge_adb(used: FoundAdb, on_path: FoundAdb | None) -> HostCheck:
    """Compares the adb used for measuring with the adb on PATH."""
    message = "{} at {}".format(*used)
    if on_path is None or on_path[0] == used[0]:
        return HostCheck(name="adb", message=message)
    version, path = on_path
    return HostCheck(
        name="adb",
        message=f"{message}, but PATH has {version} at {path}; both share one server, started by "
        "the first one used",
        remedy=f"use only one: set {ADB_VARIABLE}={shlex.quote(str(path))}, or put the other first "
        "on PATH",
    )


def check_adb() -> Sequence[HostCheck]:
    """Finds adb in the same way as measuring and reads its version; starts no server."""
    try:
        adb = find_adb()
        used = AdbServer(adb).version(), adb
    except MissingLibraryError:
        return ()  # only phones need it
    except FleetError as error:
        return (HostCheck(name="adb", message=error.message, remedy=error.remedy),)
    return (judge_adb(used, _adb_on_path()),)


def _adb_on_path() -> FoundAdb | None:
    path = shutil.which("adb")
    if path is None:
        return None
    try:
        return AdbServer(Path(path)).version(), Path(path)
    except FleetError:
        return None  # an adb that does not run cannot start a server

"""The phones that adb lists or that are announced on the network."""

import shlex
from collections.abc import Iterable, Sequence

from fleetrank.device_agents.android.adb.adb_server import AdbServer
from fleetrank.device_agents.android.adb.adb_text import (
    REMEDIES,
    DeviceState,
    MdnsService,
    Transport,
)
from fleetrank.device_agents.android.adb.adb_text import SeenDevice as SeenPhone
from fleetrank.device_agents.contract.registration import SeenDevice

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

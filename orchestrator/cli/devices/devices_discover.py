"""`fleetrank devices discover`: the phones that adb lists, and the next step for each."""

import shlex
from collections.abc import Iterable, Sequence

from fleetrank.device_agents.android.adb.adb_server import AdbServer
from fleetrank.device_agents.android.adb.adb_text import (
    REMEDIES,
    DeviceState,
    MdnsService,
    SeenDevice,
    Transport,
)
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.output.listing import AsJson, print_table
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.device_registry import DeviceFile, load_devices

_ANNOUNCED = "announced"
"""State of a phone that is announced on the network but not connected."""
_PAIRING = "_adb-tls-pairing._tcp"
NOTHING_SEEN = (
    "adb lists no phone: connect one and enable USB debugging in its developer options, "
    "or try `fleetrank devices virtual`"
)


def discover(
    as_json: AsJson = False,
) -> None:
    """List the phones that adb finds and the next step for each."""
    server = AdbServer()
    rows = rows_of(server.devices(), server.mdns_services(), _registered())
    if rows or as_json:
        print_table(rows, as_json)
    else:
        print(NOTHING_SEEN)


def rows_of(
    seen: Sequence[SeenDevice], services: Iterable[MdnsService], devices: Iterable[DeviceFile]
) -> list[dict[str, object]]:
    """One row per phone; phones that are announced but not connected come last.

    Args:
        seen: phones that adb is connected to.
        services: phones announced on the network.
        devices: registered devices; their option `serial` identifies the phone.
    """
    names = {str(device.options.get("serial")): device.name for device in devices}
    rows = [_seen_row(one, names.get(one.serial)) for one in seen]
    known = {one.serial for one in seen}
    rows += [
        _announced_row(service, names.get(service.address))
        for service in services
        if service.address not in known and f"{service.name}.{service.kind}" not in known
    ]
    return rows


def _seen_row(seen: SeenDevice, name: str | None) -> dict[str, object]:
    return {
        "serial": seen.serial,
        "state": seen.state.value,
        "transport": seen.transport.value,
        "model": seen.model,
        "registered_as": name,
        "what_to_do": _what_to_do(seen, name),
    }


def _what_to_do(seen: SeenDevice, name: str | None) -> str:
    if seen.state is not DeviceState.DEVICE:
        return REMEDIES[seen.state]
    if name is not None:
        return f"nothing; registered as {name}"
    return f"fleetrank devices add --adb {shlex.quote(seen.serial)}"


def _announced_row(service: MdnsService, name: str | None) -> dict[str, object]:
    verb = "pair" if service.kind == _PAIRING else "connect"
    return {
        "serial": service.address,
        "state": _ANNOUNCED,
        "transport": Transport.MDNS.value,
        "model": None,
        "registered_as": name,
        "what_to_do": f"adb {verb} {shlex.quote(service.address)}",
    }


def _registered() -> Iterable[DeviceFile]:
    try:
        workspace = current().workspace
    except UsageError:
        return ()  # discovery works without a workspace too
    return load_devices(workspace).values()

"""`fleetrank devices discover` and `virtual`: phones that adb finds, and simulated ones."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from fleetrank.device_agents.contract.kind import Kind
from fleetrank.device_agents.contract.registration import (
    SeenDevice,
    VirtualDevices,
    VirtualMode,
    VirtualRequest,
)
from fleetrank.device_agents.registry import load_kinds
from fleetrank.foundation.wording import with_flags
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.output.listing import AsJson, print_table
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.device_registry import DeviceFile, load_devices


def discover(
    as_json: AsJson = False,
) -> None:
    """List the phones that adb finds and the next step for each."""
    devices = list(_registered())
    rows: list[dict[str, object]] = []
    advice = []
    for one in load_kinds().values():
        if one.discoverer is not None:
            discoverer = one.discoverer()
            rows += rows_of(one, discoverer.discover(), devices)
            advice.append(discoverer.nothing_seen)
    if rows or as_json:
        print_table(rows, as_json)
    else:
        print("\n".join(advice))


def rows_of(
    kind: Kind, seen: Iterable[SeenDevice], devices: Iterable[DeviceFile]
) -> list[dict[str, object]]:
    """One row per device that a host sees; a registered one is recognised by its address."""
    names: dict[str | None, str] = {}
    if kind.registrar is not None:
        registrar = kind.registrar({})
        names = {
            registrar.address_of(device.options): device.name
            for device in devices
            if device.kind_of is kind
        }
    return [
        {
            "serial": one.address,
            "state": one.state,
            "transport": one.transport,
            "model": one.model,
            "registered_as": names.get(one.address),
            "what_to_do": _what_to_do(kind, one, names.get(one.address)),
        }
        for one in seen
    ]


def _what_to_do(kind: Kind, seen: SeenDevice, name: str | None) -> str:
    if seen.remedy is not None:
        return with_flags(seen.remedy)
    if name is not None:
        return f"nothing; registered as {name}"
    return f"fleetrank devices add --{kind.address_option} {shlex.quote(seen.address)}"


def _registered() -> Iterable[DeviceFile]:
    try:
        workspace = current().workspace
    except UsageError:
        return ()  # discovery works without a workspace too
    return load_devices(workspace).values()


MAX_COUNT = 200
"""Upper limit of phones served by one process; as many were tested."""


def _imitations() -> VirtualDevices:
    """The virtual devices of the kind that has some."""
    return next(one.virtual_devices() for one in load_kinds().values() if one.virtual_devices)


def virtual(
    count: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="How many phones.")] = 1,
    mode: Annotated[
        VirtualMode,
        typer.Option(help="real: run models on this computer; canned: generate latencies."),
    ] = VirtualMode.REAL,
    profile: Annotated[
        list[str] | None,
        typer.Option(help=f"Phone model: {', '.join(_imitations().profiles)}; may be repeated."),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port of the first phone (default: free ports).")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Random seed of serial numbers and canned latencies.")
    ] = 0,
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder for the phones' files (default: a temporary one)."),
    ] = None,
) -> None:
    """Start virtual phones and serve them until Ctrl-C.

    They implement the device side of the adb protocol, on this computer only and for your adb key
    only. Their measurements have the origin `virtual` and are excluded from the transfer tables.
    """
    imitations = _imitations()
    if unknown := set(profile or ()) - set(imitations.profiles):
        raise UsageError(
            f"unknown virtual phone '{min(unknown)}'",
            f"--profile must be one of {', '.join(imitations.profiles)}",
        )
    request = VirtualRequest(
        count=count,
        mode=mode,
        folder=folder,
        profiles=tuple(profile or ()),
        seed=seed,
        first_port=port,
    )
    imitations.serve(request, lambda line: print(line, flush=True))

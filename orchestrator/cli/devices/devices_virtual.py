"""`fleetrank devices virtual`: simulated phones for users without a real one."""

from pathlib import Path
from typing import Annotated

import typer

from fleetrank.device_agents.contract.registration import (
    VirtualDevices,
    VirtualMode,
    VirtualRequest,
)
from fleetrank.device_agents.registry import load_kinds
from fleetrank.orchestrator.errors import UsageError

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

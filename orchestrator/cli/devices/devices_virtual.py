"""`fleetrank devices virtual`: simulated phones for users without a real one."""

import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from fleetrank.device_agents.android.adb.adb_server import AdbServer
from fleetrank.device_agents.android.state.probe_text import VirtualMode
from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.device_agents.virtual_phone.daemon.farm import FarmedPhone, FarmSpec, VirtualFarm
from fleetrank.device_agents.virtual_phone.handset.profile import DEFAULT_PROFILES, load_profiles
from fleetrank.foundation.errors import FleetError
from fleetrank.orchestrator.errors import UsageError

MAX_COUNT = 200
"""Upper limit of phones served by one process; as many were tested."""


def virtual(
    count: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="How many phones.")] = 1,
    mode: Annotated[
        VirtualMode,
        typer.Option(help="real: run models on this computer; canned: generate latencies."),
    ] = VirtualMode.REAL,
    profile: Annotated[
        list[str] | None,
        typer.Option(help=f"Phone model: {', '.join(load_profiles())}; may be repeated."),
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
    profiles = _checked(profile)
    # Without the handlers adb would list the phones as offline forever and their files would
    # remain. SIGINT too: a script's shell makes its background jobs ignore SIGINT, and then
    # Python installs no handler.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        server = AdbServer()
        server.start()  # creates the key that the phones require
    except MissingLibraryError:
        server = None
    with tempfile.TemporaryDirectory(prefix="fleetrank-phones-") as temporary:
        spec = FarmSpec(
            folder=folder or Path(temporary),
            count=count,
            mode=mode,
            profiles=profiles,
            seed=seed,
            first_port=port,
        )
        with VirtualFarm(spec) as farm:
            _serve(farm.phones, server)


def _checked(names: list[str] | None) -> tuple[str, ...]:
    unknown = set(names or ()) - set(load_profiles())
    if unknown:
        raise UsageError(
            f"unknown virtual phone '{min(unknown)}'",
            f"--profile must be one of {', '.join(load_profiles())}",
        )
    return tuple(names or DEFAULT_PROFILES)


def _serve(phones: Iterable[FarmedPhone], server: AdbServer | None) -> None:
    for phone in phones:
        print(f"{phone.address}  {phone.serial}  {phone.profile}  {phone.mode.value}", flush=True)
    try:
        if server is None:
            print("adb is not installed. Install the extra `android`, then start again.")
        else:
            _connect(phones, server)
        print("Press Ctrl-C to stop the phones.", flush=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        print("ended")
    finally:
        if server is not None:
            _disconnect(phones, server)


def _connect(phones: Iterable[FarmedPhone], server: AdbServer) -> None:
    for phone in phones:
        server.connect(phone.address)
    print("adb is connected to them. In another terminal:")
    print("  fleetrank devices discover")
    met: Counter[str] = Counter()
    for phone in phones:
        met[phone.profile] += 1
        number = f"-{met[phone.profile]}" if met[phone.profile] > 1 else ""
        name = f"virtual-{phone.profile}{number}"
        print(f"  fleetrank devices add --adb {phone.address} --name {name}")


def _disconnect(phones: Iterable[FarmedPhone], server: AdbServer) -> None:
    """Disconnects adb, which would otherwise list the phones as offline forever."""
    for phone in phones:
        try:
            server.disconnect(phone.address)
        except FleetError:
            return  # the adb server has ended, and its list with it

"""Serves phones until Ctrl-C or SIGTERM, connected to the adb server of this host.

`PYTHONPATH=tests python -m phone_farm --count 2 --mode canned`. Each printed line has the address
of a phone, its serial number, its profile and its mode; the file `STAND_IN` of the last lines is
the program that such a phone is registered with.
"""

import argparse
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fleetrank.device_agents.android.adb_server import AdbServer
from fleetrank.device_agents.contract.kind import VirtualMode
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.temporary import temporary_folder
from phone_farm.farm import FarmedPhone, FarmSpec, VirtualFarm
from phone_farm.imitation.command import stand_in_of, stand_ins
from phone_farm.profile import DEFAULT_PROFILES, load_profiles


def main() -> None:
    """Starts the phones, says how one is registered, and waits."""
    asked = read_arguments()
    # A shell starts a script's background jobs without SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    server = AdbServer()
    server.start()  # creates the key that the phones require
    with suppress(KeyboardInterrupt), temporary_folder("phones") as temporary:
        spec = FarmSpec(
            folder=asked.folder or temporary,
            count=asked.count,
            mode=asked.mode,
            profiles=tuple(asked.profile or DEFAULT_PROFILES),
            seed=asked.seed,
            first_port=asked.port,
        )
        with VirtualFarm(spec) as farm, connected(server, farm.phones):
            for phone in farm.phones:
                print(phone.address, phone.serial, phone.profile, phone.mode.value)
            print(f"fleetrank devices add --adb {farm.phones[0].address} {tools(asked.mode)}")
            print("Press Ctrl-C to stop the phones.", flush=True)
            signal.pause()


def tools(mode: VirtualMode) -> str:
    """The options with the programs of such a phone; an emulated one runs those of a user."""
    if mode is VirtualMode.EMULATED:
        return "--tool NAME=PATH"
    return " ".join(f"--tool {name}={stand_in_of(name)}" for name in stand_ins())


@contextmanager
def connected(server: AdbServer, phones: tuple[FarmedPhone, ...]) -> Iterator[None]:
    """At the end, adb forgets the phones: else it lists them as offline forever."""
    for phone in phones:
        server.connect(phone.address)
    try:
        yield
    finally:
        with suppress(FleetError):  # the adb server has ended, and its list with it
            for phone in phones:
                server.disconnect(phone.address)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--mode", type=VirtualMode, choices=list(VirtualMode), default="canned")
    parser.add_argument("--profile", action="append", choices=sorted(load_profiles()))
    parser.add_argument("--port", type=int, help="of the first phone (default: free ports)")
    parser.add_argument("--seed", type=int, default=0, help="of serial numbers and latencies")
    parser.add_argument("--folder", type=Path, help="of the phones' files; it is kept")
    return parser.parse_args()


if __name__ == "__main__":
    main()

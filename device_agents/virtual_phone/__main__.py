"""Starts virtual phones until it is stopped: `python -m fleetrank.device_agents.virtual_phone`."""

import argparse
import json
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path

from fleetrank.device_agents.contract.registered import VirtualMode
from fleetrank.device_agents.virtual_phone.farm import FarmSpec, VirtualFarm
from fleetrank.device_agents.virtual_phone.profile import DEFAULT_PROFILES, load_profiles
from fleetrank.foundation.errors import FleetError


def main() -> int:
    """Prints one JSON line per phone, then waits for SIGINT or SIGTERM."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    try:
        with VirtualFarm(_read_spec()) as farm:
            for phone in farm.phones:
                sys.stdout.write(json.dumps(asdict(phone), default=str) + "\n")
            sys.stdout.flush()
            stopped.wait()
    except FleetError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _read_spec() -> FarmSpec:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--port", type=int, help="port of the first phone; the others follow")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument(
        "--mode", type=VirtualMode, choices=list(VirtualMode), default=VirtualMode.CANNED
    )
    parser.add_argument("--profile", action="append", choices=list(load_profiles()))
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    return FarmSpec(
        folder=asked.folder,
        count=asked.count,
        mode=asked.mode,
        profiles=tuple(asked.profile or DEFAULT_PROFILES),
        seed=asked.seed,
        first_port=asked.port,
    )


if __name__ == "__main__":
    sys.exit(main())

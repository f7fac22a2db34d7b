"""What does conducting cost? A thousand simulated devices on four hosts, against a bare Ray loop.

Four raylets on this machine, 250 devices each, 20 ms of device time a repeat. Both sides give the
same tasks to the same agents (100 samples a repeat, made up in Python on the same cores) and take
the same measurements back in batches; fleetrank alone decides, spools, makes rows, syncs them to
its journal and shows progress. They take turns, each in a process of its own. The bound is the
larger of the device time and repeats / (rate of the bare loop of the same round). Computing time is
of all processes of a side, a repeat: it holds on a busy machine too.

`--quick` does a tenth, `--profile FILE` keeps the profile of fleetrank's driver in the largest run.
"""

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestration_sides import SHAPES

from fleetrank.orchestrator.dispatch.local_ray import in_own_folder, set_ray_environment
from fleetrank.orchestrator.dispatch.ray_hosts import LABEL
from fleetrank.orchestrator.workspace.workspace import Workspace

HOSTS, DEVICES, DEVICE_S = 4, 1000, 0.02
SIDES = Path(__file__).with_name("orchestration_sides.py")


def main() -> None:
    """Starts the hosts and prints one line per figure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", type=Path)
    given = parser.parse_args()
    sizes = [size for size in SHAPES if not given.quick or size < max(SHAPES)]
    with tempfile.TemporaryDirectory(prefix="fr") as name, cluster(Path(name)) as address:
        print(
            " repeats     bound fleetrank  ratio | computing: bare, fleetrank (driver), ratio |"
            " driver's peak, planning"
        )
        for size in sizes:
            profile = given.profile if size == sizes[-1] else None
            compare(Path(name), address, size, given.rounds, profile)
        for what in ("publish", "resume"):
            found = step(what, Path(name) / f"{sizes[-1]}-0", address, sizes[-1])
            print(f"{what}, {sizes[-1]:,} rows: " + listed(found))


def compare(folder: Path, address: str, size: int, rounds: int, profile: Path | None) -> None:
    """Runs both sides in turn and prints a line for each round."""
    ratios = []
    for number in range(rounds):
        target = workspace(folder / f"{size}-{number}")
        found = {}
        for side in ("bare", "ours") if number % 2 else ("ours", "bare"):
            found[side] = step(side, target, address, size, profile)
        bare, ours = found["bare"], found["ours"]
        bound_s = max(size / DEVICES * DEVICE_S, bare["seconds"])
        ratios.append((ours["seconds"] / bound_s, ours["all_s"] / bare["all_s"]))
        print(
            f"{size:8,} {bound_s:7.1f} s {ours['seconds']:7.1f} s {ratios[-1][0]:6.2f} |"
            f" {per_repeat(bare, size)} {per_repeat(ours, size)} {ratios[-1][1]:6.2f} |"
            f" {ours['peak_mb']:6.0f} MB {ours['plan_s']:5.1f} s",
            flush=True,
        )
    wall, computing = (statistics.median(column) for column in zip(*ratios, strict=True))
    print(f"{size:8,} repeats, medians: wall time {wall:.2f}, computing time {computing:.2f}")


def per_repeat(figures: dict[str, float], size: int) -> str:
    """Microseconds of computing a repeat, and how many of them are the driver's."""
    every, driver = (1e6 * figures[name] / size for name in ("all_s", "driver_s"))
    return f"{every:5.0f} us ({driver:3.0f})"


def step(
    name: str, folder: Path, address: str, repeats: int, profile: Path | None = None
) -> dict[str, float]:
    """One side in a process of its own, whose peak of memory is then its own too."""
    command = [sys.executable, "-P", str(SIDES), name, str(folder), address, str(repeats)]
    command += [str(profile)] if profile and name == "ours" else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def listed(figures: dict[str, float]) -> str:
    """Names and figures in a line."""
    return ", ".join(f"{name} {value:.2f}" for name, value in figures.items())


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Four labelled raylets of this machine; gives the address of their head."""
    os.environ |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_enable_worker_prestart": "0",
        # Ray notes the newest cluster in its usual folder and does not make that folder.
        "RAY_TMPDIR": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    set_ray_environment()
    from ray.cluster_utils import Cluster

    with in_own_folder():
        started = Cluster()
        for number in range(HOSTS):
            started.add_node(
                num_cpus=1,
                object_store_memory=100_000_000,
                labels={LABEL: f"h{number}"},
                **({} if number else {"include_dashboard": False}),
            )
    try:
        yield started.address
    finally:
        started.shutdown()


def workspace(folder: Path) -> Path:
    """A workspace with a thousand device files."""
    made = Workspace.init(folder)
    for number in range(DEVICES):
        (made.devices / f"sim{number:04}.yaml").write_text(
            f"name: sim{number:04}\nkind: simulated\nhost: h{number % HOSTS}\n"
            f"options: {{duration_s: {DEVICE_S}, noise: 0.02, seed: {number}}}\n"
        )
    return folder


if __name__ == "__main__":
    main()

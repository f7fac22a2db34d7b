"""How long does a user wait: for `--help`, and for the page over 100,000 rows?

Each is the wall time of a whole process, in turn with what one would use instead in the same run:
an empty Python for `--help`, a Polars script that prints one median per model and platform for
`report build`. Printed: medians, and their ratio pair by pair. The rows are made up (13 models,
256 platforms, 30 repeats, 50 samples each) and live in a temporary folder.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "makers"))
# Before this folder, whose analysis.py would shadow the package.
sys.path.insert(0, str(Path(__file__).parent.parent))

from fleet_rows import NETS, Place, write_results

FLEETRANK = str(Path(sys.executable).parent / "fleetrank")
ROUNDS = 5
DEVICES, RUNTIMES, REPEATS = 128, ("onnx", "tflite"), 31

PLAIN = """
import sys, polars as pl
frame = pl.scan_parquet(sys.argv[1], hive_partitioning=True).filter(pl.col("status") == "ok")
print(frame.group_by("model", "platform_key").agg(pl.col("latency_p50_ns").median()).collect())
"""


def main() -> None:
    """Makes the rows, times both pairs and prints a line each."""
    with tempfile.TemporaryDirectory() as folder:
        n_rows = make_rows(Path(folder))
        parts = str(Path(folder) / "results" / "measurements" / "**" / "*.parquet")
        build = [FLEETRANK, "--workspace", folder, "report", "build"]
        show("fleetrank --help", [FLEETRANK, "--help"], [sys.executable, "-c", "pass"])
        show(f"report build, {n_rows:,} rows", build, [sys.executable, "-c", PLAIN, parts])
        size = (Path(folder) / "report.html").stat().st_size
        print(f"the page has {size / 1e6:.1f} MB")


def make_rows(folder: Path) -> int:
    """Writes a workspace with results of a made-up fleet and returns the number of rows."""
    (folder / "cluster.yaml").touch()
    places = [
        Place(
            device=f"phone-{number:03}",
            tier="edge" if number % 4 else "cpu",
            runtime=runtime,
            gflops=5.0 + number,
        )
        for number in range(DEVICES)
        for runtime in RUNTIMES
    ]
    write_results(folder / "results", nets=NETS, places=places, repeats=REPEATS, n_samples=50)
    return len(NETS) * len(places) * REPEATS


def show(name: str, command: Sequence[str], instead: Sequence[str]) -> None:
    """Times both in turn and prints medians and the ratio."""
    seconds(command), seconds(instead)
    pairs = [(seconds(command), seconds(instead)) for _ in range(ROUNDS)]
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(mine / other for mine, other in pairs)
    print(f"{name:32} {ours:6.2f} s   instead {theirs:6.2f} s   ratio {ratio:.1f}")


def seconds(command: Sequence[str]) -> float:
    """Wall time of a process that has to succeed."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()

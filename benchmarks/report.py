"""How long does a user wait: for commands, and for the page over 10^4, 10^5 and 10^6 rows?

Each is a whole process, in turn with what one would use instead in the same run: for commands over
the demo's results a Python that only imports the libraries which they cannot do without, for
`report build` a Polars script that prints one median per model and platform. Of commands the
processor's time, with that of their children, else the wall time. Printed: the least of each, their
ratio, and the page's size. The rows are made
up (13 models, 256 platforms, 3 to 310 repeats, 50 samples each) and live in a temporary folder.
The fleet of the study (13 models, 106 devices, 3 runtimes) and, where `FLEETRANK_PUBLIC_DATA` names
them, both public imports are built as well.
"""

import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "makers"))

import polars as pl
from fleet_rows import NETS, Place, write_results
from stored_part import write_part

FLEETRANK = str(Path(sys.executable).parent / "fleetrank")
ROUNDS = 5
TABLES = "typer, numpy, polars"
COMMANDS = {
    "--help": "typer",
    "models list": "typer",
    "results list": "typer, polars",
    "doctor": "typer, torch",
    "query 'SELECT count(*) FROM measurements'": "typer, duckdb, pyarrow, polars",
    "report show latency": TABLES,
    "report show trust": TABLES,
    "report show transfer": TABLES,
    "faster mobilenet_v2 squeezenet1_1": f"{TABLES}, scipy.special",
    "report build": f"{TABLES}, scipy.special, jinja2, vl_convert",
}
"""To the libraries that each loads in some process."""
DEVICES, RUNTIMES = 128, ("onnx", "tflite")
REPEATS_OF_A_PART, PARTS = 31, (1, 10)
"""31 repeats are 103,168 rows; a million are ten such parts."""

PLAIN = """
import sys, polars as pl
frame = pl.scan_parquet(sys.argv[1], hive_partitioning=True).filter(pl.col("status") == "ok")
print(frame.group_by("model", "platform_key").agg(pl.col("latency_p50_ns").median()).collect())
"""


def main() -> None:
    """Makes the rows, times both sides and prints a line each."""
    with tempfile.TemporaryDirectory() as folder:
        commands(folder)
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), make_rows(Path(folder), fleet(106, ("onnx", "tflite", "torch")), 5))
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), make_rows(Path(folder), fleet(DEVICES, RUNTIMES), 3))
    for parts in PARTS:
        with tempfile.TemporaryDirectory() as folder:
            n_rows = make_rows(Path(folder), fleet(DEVICES, RUNTIMES), REPEATS_OF_A_PART)
            multiply(Path(folder), n_rows, parts)
            build(Path(folder), n_rows * parts)
    if root := os.environ.get("FLEETRANK_PUBLIC_DATA"):
        with tempfile.TemporaryDirectory() as folder:
            build(Path(folder), import_public(Path(folder), Path(root)))


def commands(folder: str) -> None:
    """Times commands over the results of the demo."""
    ours = [FLEETRANK, "--workspace", folder]
    (Path(folder) / "cluster.yaml").touch()
    demo = [*ours, "results", "import", "--from", "demo"]
    subprocess.run(demo, check=True, stdout=subprocess.DEVNULL)
    for line, libraries in COMMANDS.items():
        bare = [sys.executable, "-c", f"import {libraries}"]
        show(line, [*ours, *shlex.split(line)], bare, processor_s)


def build(folder: Path, n_rows: int) -> None:
    """Times the page over a workspace."""
    parts = str(folder / "results" / "measurements" / "**" / "*.parquet")
    command = [FLEETRANK, "--workspace", str(folder), "report", "build"]
    show(f"report build, {n_rows:,} rows", command, [sys.executable, "-c", PLAIN, parts])
    size = (folder / "report.html").stat().st_size
    print(f"{'':32} the page has {size / 1e6:.1f} MB", flush=True)


def fleet(n_devices: int, runtimes: Sequence[str]) -> list[Place]:
    """Made-up phones and CPUs, three to one."""
    return [
        Place(
            device=f"phone-{number:03}",
            tier="edge" if number % 4 else "cpu",
            runtime=runtime,
            gflops=5.0 + number,
        )
        for number in range(n_devices)
        for runtime in runtimes
    ]


def make_rows(folder: Path, places: Sequence[Place], repeats: int) -> int:
    """Writes a workspace with results of a made-up fleet and returns the number of rows."""
    (folder / "cluster.yaml").touch()
    write_results(folder / "results", nets=NETS, places=places, repeats=repeats, n_samples=50)
    part = next((folder / "results").rglob("*.parquet"))
    return int(pl.scan_parquet(part).select(pl.len()).collect().item())


def multiply(folder: Path, n_rows: int, parts: int) -> None:
    """Writes the part again as further repeats; a part is named after its first row."""
    first = next((folder / "results").rglob("*.parquet"))
    frame = pl.read_parquet(first)
    for number in range(1, parts):
        later = frame.with_columns(pl.col("repeat") + REPEATS_OF_A_PART * number)
        later.pipe(write_part, first.with_name(f"part-{n_rows * number:012}.parquet"))


def import_public(folder: Path, root: Path) -> int:
    """Imports both sources and returns the number of rows."""
    (folder / "cluster.yaml").touch()
    for source, name in (("timm", "timm"), ("qai-hub", "qai_hub")):
        command = [FLEETRANK, "--workspace", str(folder), "results", "import", "--from", source]
        subprocess.run([*command, str(root / name)], check=True, stdout=subprocess.DEVNULL)
    parts = folder / "results" / "measurements" / "**" / "*.parquet"
    return int(pl.scan_parquet(str(parts)).select(pl.len()).collect().item())


def show(
    name: str,
    command: Sequence[str],
    instead: Sequence[str],
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Times both in turn; prints the least of each, as other work only adds, and their ratio."""
    pairs = [(seconds(command, clock), seconds(instead, clock)) for _ in range(ROUNDS)]
    ours, theirs = map(min, zip(*pairs, strict=True))
    print(f"{name:42} {ours:6.2f} s   instead {theirs:6.2f} s   ratio {ours / theirs:.1f}")


def seconds(command: Sequence[str], clock: Callable[[], float]) -> float:
    """What the clock counts while a process runs that has to succeed."""
    start = clock()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return clock() - start


def processor_s() -> float:
    """User and system seconds of all processes that have ended."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


if __name__ == "__main__":
    main()

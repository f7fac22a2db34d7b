"""Seconds of the processor and peak memory of single tables over large made-up fleets.

Each table is made in a separate process with one BLAS thread, as `fleetrank report show` makes it,
from stored rows in a temporary folder. `--shapes 18x2000,2000x13` are platforms x models,
`--tables transfer,trust/ceiling` limits the tables, and `--profile` prints where one spends its
time.
A busy machine makes these seconds longer by up to a half; the first line states its load.
"""

import argparse
import cProfile
import json
import os
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from made_up_rows import Shape, make_rows

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import REQUESTS, make_table

SAMPLES = 10
"""Of each row. Tables read stored summaries, so the number of samples costs only disk space."""


def main() -> None:
    """Prints one line per shape and table; `--one FOLDER` is the process that makes a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default="18x2000,2000x13")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tables", default=",".join(dict.fromkeys(one.name for one in REQUESTS)))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--one", type=Path)
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(one_table(given.one, given.tables, is_profiled=given.profile)))
        return
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for text in given.shapes.split(","):
        n_platforms, n_models = map(int, text.split("x"))
        with tempfile.TemporaryDirectory() as folder:
            n_rows = n_platforms * n_models * given.repeats
            shape = Shape(
                n_rows=n_rows, n_platforms=n_platforms, n_models=n_models, n_samples=SAMPLES
            )
            make_rows(Path(folder), shape)
            print(f"{n_platforms} platforms x {n_models} models x {given.repeats} repeats")
            for name in given.tables.split(","):
                print(line(Path(folder), name, is_profiled=given.profile), flush=True)


def line(folder: Path, name: str, *, is_profiled: bool) -> str:
    """Figures of one table, made in a separate process."""
    command = [sys.executable, __file__, "--one", str(folder), "--tables", name]
    done = subprocess.run(
        command + ["--profile"] * is_profiled,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    *listed, figures = done.stdout.splitlines()
    found = json.loads(figures)
    text = f"  {name:18} {found['cpu_s']:6.1f} s {found['peak_bytes'] / 1e9:5.2f} GB"
    return "\n".join([*listed, text + (f"  {found['refused']}" if found["refused"] else "")])


def one_table(folder: Path, name: str, *, is_profiled: bool) -> dict[str, object]:
    """Makes the table once; its figures include the start of the process and reading the rows."""
    # Of the processor: other work on the machine makes elapsed time two or three times longer.
    profiler, refused = cProfile.Profile(time.process_time), None
    try:
        if is_profiled:
            profiler.enable()
        make_table(name, load_measurements(folder), Selection())
    except AnalysisError as error:
        refused = error.message
    profiler.disable()
    if is_profiled:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "refused": refused,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_bytes": used.ru_maxrss * 1024,
    }


if __name__ == "__main__":
    main()

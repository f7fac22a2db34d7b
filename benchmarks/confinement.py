"""Do the walls around a file from outside change what is measured of it?

The same artifact of each runtime is measured with and without them, in two ways:

- **workers**: fresh workers in pairs, one confined, one not, in alternating order, on one core.
  Printed: the median over pairs of the ratio confined / trusted, of the medians of latency and of
  both memory peaks, each with its 95 % interval by order statistics. Fresh processes differ by some
  per cent, so the interval of latency is wide: see the next.
- **one process**: a model is loaded and timed, the walls go up around it, and it is timed again. A
  process in which none go up is its pair, so that drift cancels. The place of the model's memory,
  which makes processes differ, is the same on both sides.

Run on a quiet host: `python benchmarks/confinement.py`. Ten pairs take about six minutes; more of
them (`--pairs 40`) make the intervals narrower. The artifacts of two models are taken from the
cache of this workspace, or made.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fidelity import artifact_of, interval, shown

from fleetrank.device_agents.confinement.walls import confine
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.runtime import LoadedModel
from fleetrank.device_agents.contract.task import Execution, MeasurePolicy, MeasureTask
from fleetrank.device_agents.linux.cores import cpus_one_per_core
from fleetrank.device_agents.linux.scratch import SCRATCH, scratch_of_this_worker
from fleetrank.device_agents.linux.worker_client import measure_in_worker
from fleetrank.device_agents.runtimes.made_inputs import make_inputs
from fleetrank.device_agents.runtimes.runner import create_runner
from fleetrank.foundation.vocabulary import Runtime

MODEL, PRIMER = "mobilenet_v2", "squeezenet1_1"
CELLS = {
    "onnx": ("onnx", "cpu"),
    "torch": ("pt2", "cpu"),
    "tflite": ("tflite", "xnnpack"),
    "executorch": ("pte", "xnnpack"),
}
POLICY = MeasurePolicy(max_warmup_s=1.0, max_time_s=2.0, energy_s=0.0)
BLOCK_S = 1.0
TOLERANCE = 0.01


def main() -> None:
    """Measures every runtime and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--runtime", choices=CELLS, action="append")
    parser.add_argument("--cell", nargs=3, metavar=("RUNTIME", "PATH", "CONFINED"))
    options = parser.parse_args()
    if options.cell:
        runtime, path, is_confined = options.cell
        print(json.dumps(before_and_after(runtime, path, is_confined=is_confined == "True")))
        return
    for runtime in options.runtime or CELLS:
        report(runtime, options.pairs)


def report(runtime: str, n_pairs: int) -> None:
    """Both ways for one runtime."""
    task = task_of(runtime)
    pairs = [worker_pair(task, number) for number in range(n_pairs)]
    (walls,) = {seen.worker.confinement for seen, _ in pairs if seen.worker is not None}
    print(f"{runtime}: {MODEL}, {n_pairs} pairs, {walls} / none")
    within = [process_pair(runtime, task.artifact_path, number) for number in range(n_pairs)]
    line("latency, one process", within)
    line("latency, workers", ratios(pairs, median_ns))
    line("load peak, workers", ratios(pairs, lambda seen: seen.load_peak_memory_bytes))
    line("run peak, workers", ratios(pairs, lambda seen: seen.run_peak_memory_bytes))


def line(name: str, found: Sequence[float]) -> None:
    """One ratio, and how it compares with the tolerance."""
    low, high = interval(list(found))
    is_inside = low >= 1 - TOLERANCE and high <= 1 + TOLERANCE
    is_outside = low > 1 + TOLERANCE or high < 1 - TOLERANCE
    verdict = "inside" if is_inside else "outside" if is_outside else "undecided"
    print(f"  {name:22} {shown(list(found))}  {verdict}", flush=True)


def task_of(runtime: str) -> MeasureTask:
    """A task of one thread on the first core."""
    file_format, backend = CELLS[runtime]
    path, sha256 = artifact_of(MODEL, file_format)
    primer, _ = artifact_of(PRIMER, file_format)
    return MeasureTask(
        task_id="confinement",
        artifact_path=str(Path(path).resolve()),
        artifact_sha256=sha256,
        primer_path=str(Path(primer).resolve()),
        execution=Execution(
            runtime=Runtime(runtime), backend=backend, affinity=cpus_one_per_core()[:1]
        ),
        policy=POLICY,
    )


def worker_pair(task: MeasureTask, number: int) -> tuple[Measurement, Measurement]:
    """A confined and a trusted measurement, every second time the other way round."""
    order = (False, True) if number % 2 else (True, False)
    seen = {}
    for is_trusted in order:
        seen[is_trusted] = measure_in_worker(replace(task, is_trusted=is_trusted))
        if seen[is_trusted].failure is not None:
            raise SystemExit(f"{task.execution.runtime}: {seen[is_trusted].failure}")
    return seen[False], seen[True]


def median_ns(seen: Measurement) -> float:
    """Median of one process."""
    return statistics.median(seen.samples_ns)


def ratios(
    pairs: Sequence[tuple[Measurement, Measurement]], value: Callable[[Measurement], float | None]
) -> list[float]:
    """Confined over trusted, pair by pair."""
    return [(value(confined) or 0) / (value(trusted) or 1) for confined, trusted in pairs]


def process_pair(runtime: str, path: str, number: int) -> float:
    """After / before with walls, over after / before without."""
    found = {}
    for is_confined in (False, True) if number % 2 else (True, False):
        command = [sys.executable, __file__, "--cell", runtime, path, str(is_confined)]
        with tempfile.TemporaryDirectory() as scratch:
            environment = {**os.environ, SCRATCH: scratch}
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, env=environment
            )
        found[is_confined] = json.loads(done.stdout.splitlines()[-1])
    return found[True] / found[False]


def before_and_after(runtime: str, path: str, *, is_confined: bool) -> float:
    """Median after the walls went up over the median before, of one session."""
    task = MeasureTask(
        task_id="block",
        artifact_path=path,
        artifact_sha256="",
        execution=Execution(runtime=Runtime(runtime), backend=CELLS[runtime][1]),
    )
    model = create_runner(task.execution.runtime).load(path, task.execution)
    model.set_inputs(make_inputs(model.inputs, seed=0))
    block_ns(model)
    before = block_ns(model)
    if is_confined:
        confine(task, scratch_of_this_worker()).arm()
    return block_ns(model) / before


def block_ns(model: LoadedModel) -> float:
    """Median of one block."""
    samples, end = [], time.perf_counter() + BLOCK_S
    while time.perf_counter() < end:
        start = time.perf_counter_ns()
        model.run()
        samples.append(time.perf_counter_ns() - start)
    return statistics.median(samples)


if __name__ == "__main__":
    main()

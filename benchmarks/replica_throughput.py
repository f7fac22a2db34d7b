"""Compares sets of processes with bare processes that a script starts: the ratio should be 1.

The bare side knows nothing of fleetrank: N interpreters load the file in ONNX Runtime, wait for a
file to appear, run for the same time and print how many inferences they made from when to when.

Run: python benchmarks/replica_throughput.py MODEL.onnx --processes 1 2 --seconds 3 --repeats 3
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from fleetrank.device_agents.contract.task import (
    Execution,
    MeasurePolicy,
    MeasureTask,
    ReplicaPolicy,
)
from fleetrank.device_agents.cpu import CpuAgent
from fleetrank.device_agents.linux.cores import cpus_one_per_core
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import Runtime

_BARE = """
import os, sys, time
import numpy as np
import onnxruntime as ort
path, cpu, seconds, ready, go = sys.argv[1:]
os.sched_setaffinity(0, [int(cpu)])
options = ort.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
rng = np.random.default_rng(0)
feeds = {
    one.name: rng.standard_normal([d if isinstance(d, int) else 1 for d in one.shape]).astype("f4")
    for one in session.get_inputs()
}
for _ in range(50):
    session.run(None, feeds)
open(ready, "w").close()
while not os.path.exists(go):
    time.sleep(0.001)
start = end = time.monotonic_ns()
n = 0
while end - start < float(seconds) * 1e9:
    session.run(None, feeds)
    n += 1
    end = time.monotonic_ns()
print(start, end, n)
"""


def bare_throughput(path: Path, cpus: list[int], seconds: float) -> float:
    """Inferences a second of bare processes, one on each CPU."""
    with tempfile.TemporaryDirectory() as folder:
        go = Path(folder) / "go"
        marks = [Path(folder) / str(cpu) for cpu in cpus]
        started = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _BARE,
                    str(path),
                    str(cpu),
                    str(seconds),
                    str(mark),
                    str(go),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            for cpu, mark in zip(cpus, marks, strict=True)
        ]
        while not all(mark.exists() for mark in marks):
            if any(process.poll() is not None for process in started):
                raise SystemExit("a bare process ended before it was ready")
            time.sleep(0.01)
        go.touch()
        found = [tuple(map(int, process.communicate()[0].split())) for process in started]
    starts, ends, counts = zip(*found, strict=True)
    return sum(counts) / (max(ends) - min(starts)) * 1e9


def set_throughput(path: Path, cpus: list[int], seconds: float) -> float:
    """The same of a set of processes."""
    pinned = tuple((cpu,) for cpu in cpus)
    replicas = ReplicaPolicy(count=len(cpus), run_s=seconds, cpus=pinned)
    task = MeasureTask(
        task_id="bench",
        artifact_path=str(path.resolve()),
        artifact_sha256=file_sha256(path),
        is_trusted=True,
        execution=Execution(runtime=Runtime.ONNX, backend="cpu", replicas=replicas),
        policy=MeasurePolicy(energy_s=0.0),
    )
    seen = CpuAgent({}).measure(task)
    if seen.replicas is None or seen.failure is not None:
        raise SystemExit(f"the set failed: {seen.failure}")
    runs = seen.replicas.runs
    starts = [run.start_ns for run in runs if run.start_ns is not None]
    ends = [run.end_ns for run in runs if run.end_ns is not None]
    return sum(len(run.samples_ns) for run in runs) / (max(ends) - min(starts)) * 1e9


def main() -> None:
    """Prints one line for each number of processes; the sides take turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    free = [cpu for cpu in cpus_one_per_core() if cpu in os.sched_getaffinity(0)]
    for n in asked.processes:
        if n > len(free):
            raise SystemExit(f"{n} processes need {n} CPUs; {len(free)} are usable")
        pairs = [
            (
                set_throughput(asked.model, free[:n], asked.seconds),
                bare_throughput(asked.model, free[:n], asked.seconds),
            )
            for _ in range(asked.repeats)
        ]
        ours, bare = (median(side) for side in zip(*pairs, strict=True))
        ratio = median(a / b for a, b in pairs)
        print(f"{n} processes: {ours:,.0f}/s as a set, {bare:,.0f}/s bare, ratio {ratio:.3f}")


if __name__ == "__main__":
    main()

"""How long should a block of a round be, and what do its first runs cost?

`python benchmarks/round_blocks.py [ROUNDS]` loads three models (artifacts of this workspace's
cache) and lets them take turns for 8 s each, once for each length of a block, ROUNDS times in
random order. Printed for each length: the error of a ratio after one second of samples, without
that of processes; the share of time that is not timed; and how much slower than the median of the
later runs of its block the first, second, ... run is, with the interval of a median (McGill, Tukey
and Larsen 1978). `left_out_runs` covers those that differ.
"""

import math
import random
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rounds import block_medians, tasks_of

from fleetrank.analysis.weather import weather_of_medians
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import BlockPolicy
from fleetrank.device_agents.linux.round_client import measure_round

LENGTHS_S = (0.1, 0.2, 0.4, 0.8)
_TIMED_S = 8.0
_FIRST = 6
"""First runs that are compared with the rest of their block."""


def main() -> None:
    """Measures and prints."""
    n_rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    cache = Path(sys.argv[2]) if len(sys.argv) > 2 else Path("artifacts")
    tasks = [task for task in tasks_of(cache) if task.execution.runtime == "onnx"]
    errors: dict[float, list[float]] = defaultdict(list)
    costs: dict[float, list[float]] = defaultdict(list)
    first: dict[tuple[str, int], list[float]] = defaultdict(list)
    chance = random.Random(0)
    for number in range(n_rounds):
        for length_s in chance.sample(LENGTHS_S, len(LENGTHS_S)):
            begin = time.perf_counter()
            answers = _round(tasks, length_s, number)
            weather = weather_of_medians([block_medians(one) for one in answers])
            errors[length_s].append((weather.rest or 0.0) * math.sqrt(2 * length_s))
            seconds = _TIMED_S * len(tasks)
            costs[length_s].append((_span_s(answers) - seconds) / seconds)
            for one in answers:
                for at, ratio in _first_runs(one):
                    first[one.task_id, at].append(ratio)
            print(f"block of {length_s} s: {time.perf_counter() - begin:.0f} s", flush=True)
    for length_s in LENGTHS_S:
        error = math.sqrt(float(np.mean(np.square(errors[length_s]))))
        print(f"{length_s:4} s: error {error:.2%}, not timed {np.mean(costs[length_s]):.1%}")
    for (name, at), ratios in sorted(first.items()):
        low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75)) - 1
        half = 1.57 * (high - low) / math.sqrt(len(ratios))
        print(f"{name:24} run {at + 1}: {middle:6.1%} +- {half:.1%}")


def _round(tasks: Sequence, length_s: float, number: int) -> tuple[Measurement, ...]:
    n_blocks = round(_TIMED_S / length_s)
    blocks = BlockPolicy(
        block_s=length_s, left_out_runs=0, min_blocks=n_blocks, max_blocks=n_blocks
    )
    policy = replace(tasks[0].policy, max_time_s=1e6)
    return measure_round(
        [replace(task, seed=number, blocks=blocks, policy=policy) for task in tasks]
    )


def _span_s(answers: Sequence[Measurement]) -> float:
    """From the start of the first block to the end of the last one."""
    starts = [block.start_ns for one in answers for block in one.blocks]
    last = max(answers, key=lambda one: one.blocks[-1].start_ns)
    return (max(starts) - min(starts) + sum(last.samples_ns[-last.blocks[-1].samples :])) / 1e9


def _first_runs(one: Measurement) -> list[tuple[int, float]]:
    """Number of a run in its block, and its time over the median of the later runs of the block."""
    found, begin = [], 0
    for block in one.blocks:
        runs = one.samples_ns[begin : begin + block.samples]
        begin += block.samples
        if len(runs) >= 2 * _FIRST:
            later = float(np.median(runs[_FIRST:]))
            found += [(at, runs[at] / later) for at in range(_FIRST)]
    return found


if __name__ == "__main__":
    main()

"""Does a turn change a latency? `python benchmarks/round_switch.py [CYCLES] [CACHE]`.

Three models of a runtime are loaded and take turns of two blocks in a row: the caches at the start
of the first one hold another model's data, those of the second one its own. Both lie within a
second, so their ratio contains neither processes nor the state of the host. Printed: the median of
first / second - 1 over cycles, for each model and for each runtime, with 95 % intervals. It is the
bias of rounds against models that are measured alone, after the runs that each block leaves out.
"""

import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rounds import block_medians, groups, tasks_of
from scipy import stats

from fleetrank.analysis.rounds import Floats
from fleetrank.device_agents import round_rule
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.linux import round_client


def main() -> None:
    """Measures and prints."""
    cycles = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    tasks = tasks_of(Path(sys.argv[2] if len(sys.argv) > 2 else "artifacts"), None)
    round_client.orders = _pairs  # type: ignore[attr-defined]
    shifts: dict[str, list[float]] = {"all": []}
    for group in groups(tasks, 3, 0):
        for name, logs in _measured(group, cycles):
            half = stats.t.ppf(0.975, logs.size - 1) * logs.std(ddof=1) / math.sqrt(logs.size)
            print(
                f"{name:28}{logs.mean():8.2%} +- {half:.2%}, median {np.median(logs):.2%}",
                flush=True,
            )
            for key in ("all", name.split("/")[0]):
                shifts.setdefault(key, []).append(float(np.median(logs)))
    for key, found in shifts.items():
        values = np.array(found)
        half = stats.t.ppf(0.975, values.size - 1) * values.std(ddof=1) / math.sqrt(values.size)
        print(f"{key}: {values.mean():.2%} +- {half:.2%} over {values.size} models")


def _pairs(n_cells: int, seed: int) -> Iterator[tuple[int, ...]]:
    """Every cell has two turns in a row."""
    for order in round_rule.orders(n_cells, seed):
        yield tuple(itertools.chain.from_iterable((cell, cell) for cell in order))


def _measured(group: Sequence[MeasureTask], cycles: int) -> Iterator[tuple[str, Floats]]:
    """Log ratio of first and second block of each cycle."""
    policy = replace(group[0].policy, max_time_s=1e6)
    blocks = replace(group[0].blocks, min_blocks=cycles, max_blocks=cycles)
    tasks = [replace(task, policy=policy, blocks=blocks) for task in group]
    for one in round_client.measure_round(tasks):
        logs = np.log(block_medians(one))
        yield one.task_id, logs[0::2] - logs[1::2]


if __name__ == "__main__":
    main()

"""What a niced computation on free cores does to a measurement: paired blocks, as ratios.

One process, pinned to one core, times a step again and again. Blocks alternate: the other cores are
idle, or run computations at niceness 19. The ratio of the medians of the two kinds of blocks shows
the disturbance; the ratio of two idle blocks beside it shows what the machine does by itself.
"""

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Event

import numpy as np

_BLOCK_S = 1.0
_N_BLOCKS = 60
NICENESS = 19


def small() -> Callable[[], object]:
    """Products that fit into the core's own cache."""
    a = np.random.default_rng(0).standard_normal((96, 96), dtype=np.float32)
    return lambda: a @ a


def large() -> Callable[[], object]:
    """A sum over 64 MB, beyond the caches, as the weights of a large network."""
    a = np.ones(16 * 2**20, dtype=np.float32)
    return a.sum


def _compute(cores: Sequence[int], goes: Event, ends: Event) -> None:
    """Sorts and joins columns, as tables of results do, while `goes` is set."""
    os.sched_setaffinity(0, cores)
    os.nice(NICENESS)
    rng = np.random.default_rng(os.getpid())
    values = rng.standard_normal(2**20)
    while not ends.is_set():
        if goes.wait(0.05):
            np.sort(rng.permutation(values)).cumsum()


def _block_ns(step: Callable[[], object]) -> float:
    """The median time of a step in one block."""
    times, end_ns = [], time.perf_counter_ns() + int(_BLOCK_S * 1e9)
    while (start_ns := time.perf_counter_ns()) < end_ns:
        step()
        times.append(time.perf_counter_ns() - start_ns)
    return statistics.median(times)


def ratios(step: Callable[[], object], goes: Event) -> tuple[list[float], list[float]]:
    """(disturbed / idle, idle / idle) of each group of three blocks, in alternating order."""
    disturbed, idle = [], []
    for group in range(_N_BLOCKS // 3):
        found = {}
        for kind in ("a", "busy", "b") if group % 2 else ("b", "busy", "a"):
            if kind == "busy":
                goes.set()
            else:
                goes.clear()
            time.sleep(0.15)
            found[kind] = _block_ns(step)
        goes.clear()
        disturbed.append(found["busy"] / statistics.fmean((found["a"], found["b"])))
        idle.append(found["a"] / found["b"])
    return disturbed, idle


def interval(values: Sequence[float]) -> str:
    """The median with its 95 % bootstrap interval."""
    rng = np.random.default_rng(0)
    draws = np.median(rng.choice(values, (4000, len(values))), axis=1)
    low, high = np.quantile(draws, (0.025, 0.975))
    return f"{statistics.median(values):.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    """Prints one row for each step and number of computing cores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", type=int, nargs="*", help="numbers of computing cores")
    counts = parser.parse_args().cores
    available = sorted(os.sched_getaffinity(0))
    own, others = available[-1], available[:-1]
    print(f"{len(available)} cores, load {os.getloadavg()[0]:.1f}, niceness {NICENESS}")
    print("| step | computing cores | computing / idle | idle / idle |")
    print("|---|---|---|---|")
    for make in (small, large):
        for count in counts or sorted({1, max(1, len(others) // 2), len(others)}):
            context = multiprocessing.get_context("fork")
            goes, ends = context.Event(), context.Event()
            workers = [
                context.Process(target=_compute, args=(others[:count], goes, ends), daemon=True)
                for _ in range(count)
            ]
            for worker in workers:
                worker.start()
            os.sched_setaffinity(0, {own})
            disturbed, idle = ratios(make(), goes)
            ends.set()
            for worker in workers:
                worker.join()
            os.sched_setaffinity(0, available)
            print(f"| {make.__name__} | {count} | {interval(disturbed)} | {interval(idle)} |")


if __name__ == "__main__":
    main()

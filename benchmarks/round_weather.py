"""Which disturbances does the verdict on a round find? `python benchmarks/round_weather.py FILE`.

Loads three models (artifacts of this workspace's cache) once and lets them take turns for
`--minutes`, while conditions change every few seconds in random order: nothing injected (a third of
the time), and neighbours of known size on given CPUs. Blocks in a row under one condition are
judged as a round. Writes their medians to FILE, and prints for each condition and number of blocks:
medians of the spread of blocks and of the rest, the share called disturbed by some thresholds, and
how far the ratios of models are from those without a neighbour. Without a neighbour the share is
that of false alarms, so run it on a machine that does nothing else.

A neighbour on the measured CPU stands for steal: it works for a share of each 100 ms.
"""

import argparse
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
from rounds import block_medians, tasks_of

from fleetrank.analysis.weather import Weather, weather_of_medians
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import BlockPolicy, RepeatLimits
from fleetrank.device_agents.linux.round_client import measure_round

_NEIGHBOUR = """
import os, sys, time
import numpy as np
cpu, mebibytes, on_s, off_s = sys.argv[1:]
os.sched_setaffinity(0, {int(cpu)})
half = int(float(mebibytes) * 2**19)
buffer = np.zeros(2 * half, dtype=np.uint8)
while True:
    end = time.perf_counter() + float(on_s)
    while time.perf_counter() < end:
        buffer[:half] = buffer[half:]
    time.sleep(float(off_s))
"""
_SMALL, _LARGE = "0.01", "256"
"""MiB that a neighbour copies: inside its cache, or through memory."""
_SLOW = ("2", "2")
Neighbours = tuple[tuple[int, str, str, str], ...]
"""Of each: the number of the CPU after the measured one, MiB, seconds on and off."""
CONDITIONS: dict[str, Neighbours] = {
    "steal 10 %": ((0, _SMALL, "0.01", "0.09"),),
    "steal 30 %": ((0, _SMALL, "0.03", "0.07"),),
    "same core": ((0, _SMALL, *_SLOW),),
    "1 other core": ((1, _SMALL, *_SLOW),),
    "2 other cores": ((1, _SMALL, *_SLOW), (2, _SMALL, *_SLOW)),
    "memory, 1 core": ((1, _LARGE, *_SLOW),),
    "memory, 2 cores": ((1, _LARGE, *_SLOW), (2, _LARGE, *_SLOW)),
}
_NOTHING = "nothing"
_SEGMENT_S = 15.0
"""Ten cycles of three blocks of 0.4 s, and one that lies in two conditions."""
_THRESHOLDS = (0.02, 0.03, 0.05, 0.08, 0.12)


def main() -> None:
    """Measures, if FILE does not exist, and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--cache", type=Path, default=Path("artifacts"))
    given = parser.parse_args()
    if not given.file.exists():
        given.file.write_bytes(orjson.dumps(_measured(given.cache, 60 * given.minutes)))
    segments = orjson.loads(given.file.read_bytes())
    for n_blocks in (5, 10):
        _print(segments, n_blocks)


def _measured(cache: Path, seconds: float) -> list[dict[str, object]]:
    """Segments: `condition`, and `medians` in ns by cell and cycle."""
    if min(os.sched_getaffinity(0)) + 2 >= (os.cpu_count() or 1):
        sys.exit("run it on a CPU with two more after it: `taskset -c 0`")
    blocks = BlockPolicy(min_blocks=10**6, max_blocks=10**6)
    tasks = [
        replace(task, blocks=blocks, limits=RepeatLimits(timeout_s=1e6)) for task in tasks_of(cache)
    ]
    tasks = [task for task in tasks if task.execution.runtime == "onnx"]
    tasks = [replace(task, policy=replace(task.policy, max_time_s=1e6)) for task in tasks]
    spans: list[tuple[str, int, int]] = []
    is_over = threading.Event()
    weather = threading.Thread(target=_change, args=(spans, time.monotonic() + seconds, is_over))
    weather.start()
    answers = measure_round(tasks, finish_requested=is_over.is_set)
    weather.join()
    return [
        {"condition": name, "medians": medians}
        for name, begin_ns, end_ns in spans
        if (medians := _between(answers, begin_ns, end_ns))
    ]


def _change(spans: list[tuple[str, int, int]], end_s: float, is_over: threading.Event) -> None:
    """Changes the condition until the time is over."""
    time.sleep(15.0)  # the models load
    chance = random.Random(0)
    names = list(CONDITIONS)
    while True:
        chance.shuffle(names)
        order = [one for at in range(0, len(names), 2) for one in (*names[at : at + 2], _NOTHING)]
        for name in order:
            if time.monotonic() > end_s:
                is_over.set()
                return
            with _neighbours(CONDITIONS.get(name, ())):
                time.sleep(0.5)  # the neighbours start
                begin_ns = time.monotonic_ns()
                time.sleep(_SEGMENT_S)
                spans.append((name, begin_ns, time.monotonic_ns()))


def _between(answers: Sequence[Measurement], begin_ns: int, end_ns: int) -> list[list[float]]:
    """Medians of the cycles of which every block lies in a span, by cell; empty without any."""
    starts = np.array([[block.start_ns for block in one.blocks] for one in answers])
    ends = np.append(starts.min(axis=0)[1:], 0)
    chosen = (starts.min(axis=0) >= begin_ns) & (ends <= end_ns) & (ends > 0)
    table = np.array([block_medians(one) for one in answers])[:, chosen]
    return [list(map(float, row)) for row in table] if table.size else []


@contextmanager
def _neighbours(given: Neighbours) -> Iterator[None]:
    cpu = min(os.sched_getaffinity(0))
    children = [
        subprocess.Popen([sys.executable, "-c", _NEIGHBOUR, str(cpu + after), *sizes])
        for after, *sizes in given
    ]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


def _print(segments: Sequence[Mapping[str, object]], n_blocks: int) -> None:
    parts: dict[str, list[np.ndarray]] = {}
    for segment in segments:
        table = np.log(np.array(segment["medians"]))
        pieces = range(0, table.shape[1] - n_blocks + 1, n_blocks)
        found = [table[:, at : at + n_blocks] for at in pieces]
        parts.setdefault(str(segment["condition"]), []).extend(found)
    if not parts.get(_NOTHING):
        return
    quiet = np.median([table.mean(axis=1) for table in parts[_NOTHING]], axis=0)
    print(f"\n{n_blocks} blocks; shares of rounds above a threshold (spread or rest)")
    shown = "".join(f"{one:8.0%}" for one in _THRESHOLDS)
    print(f"{'condition':18}{'rounds':>7}{'spread':>9}{'rest':>8}{'ratios':>8}{shown}")
    for name in (_NOTHING, *CONDITIONS):
        tables = parts.get(name, [])
        if not tables:
            continue
        found = [weather_of_medians(np.exp(table).tolist()) for table in tables]
        shifts = [np.ptp(table.mean(axis=1) - quiet) for table in tables]
        figures = (_middle(found, "spread"), _middle(found, "rest"), float(np.median(shifts)))
        shares = [np.mean([_largest(one) > limit for one in found]) for limit in _THRESHOLDS]
        print(
            f"{name:18}{len(tables):7}{figures[0]:9.1%}{figures[1]:8.1%}{figures[2]:8.1%}"
            + "".join(f"{share:8.0%}" for share in shares)
        )


def _middle(found: Sequence[Weather], name: str) -> float:
    return float(np.median([getattr(one, name) for one in found]))


def _largest(one: Weather) -> float:
    return max(one.spread or 0.0, one.rest or 0.0)


if __name__ == "__main__":
    main()

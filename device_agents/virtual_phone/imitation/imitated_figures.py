"""The figures that the programs print, computed in the same way."""

import statistics
from collections.abc import Sequence

from fleetrank.device_agents.virtual_phone.imitation.inference import Inference


def percentile(values: Sequence[int], percent: float) -> int:
    """The element at floor(n * p / 100) of the sorted values, not interpolated.

    Source: stats_calculator.h of TensorFlow, performance_runner.cc of ONNX Runtime.
    """
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


def describe_us(times_us: Sequence[int]) -> str:
    """The line of statistics of `benchmark_model`, in microseconds."""
    if not times_us:
        return "count=0 p5=0 median=0 p95=0"
    p5, median, p95 = (percentile(times_us, p) for p in (5, 50, 95))
    tail = f"p5={p5} median={median} p95={p95}"
    if min(times_us) == max(times_us):
        return f"count={len(times_us)} curr={times_us[-1]}(all same) {tail}"
    return (
        f"count={len(times_us)} first={times_us[0]} curr={times_us[-1]} min={min(times_us)} "
        f"max={max(times_us)} avg={statistics.fmean(times_us):g} "
        f"std={statistics.pstdev(times_us):.0f} {tail}"
    )


def run_for(inference: Inference, *, min_runs: int, min_s: float, max_s: float) -> tuple[int, ...]:
    """Runs until both minimums are reached or the time is over; returns microseconds.

    The time is the sum of the runs' durations, so canned runs need no real time.
    """
    times_us: list[int] = []
    elapsed_us = 0
    while (len(times_us) < min_runs or elapsed_us < min_s * 1e6) and elapsed_us < max_s * 1e6:
        time_us = inference.run() // 1000
        times_us.append(time_us)
        elapsed_us += max(time_us, 1)
    return tuple(times_us)

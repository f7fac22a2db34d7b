"""Parses the text of `benchmark_model`, from TensorFlow 1.12 to LiteRT 2.

Known variants: with or without `INFO: ` before lines; everything on standard error or not; with
and without percentiles; `count=0`; `count=5 curr=7(all same)`; scientific numbers; the last line
of TensorFlow 1; LiteRT 2's block of results, with or without lines of statistics.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fleetrank.device_agents.android.programs.program_text import not_a_result, to_latency_ns, to_ns
from fleetrank.device_agents.contract.measurement import ToolSummary
from fleetrank.device_agents.device_output import MEMORY_BYTES
from fleetrank.foundation.vocabulary import Statistic

Memory = tuple[float | None, float | None]
"""Growth of ru_maxrss in bytes, until the model was ready and until the last run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFigures:
    """The figures of one run, in the project's units.

    Percentiles are the sample at index floor(n * p / 100) of the sorted ones, not interpolated
    (so the median of two is the larger). Source: `StatWithPercentiles` of TensorFlow's
    stats_calculator.h.

    Attributes:
        min_ns: of the timed runs; the same for `max_ns`.
        warmup_runs: runs after the first inference, which the program counts as a warm-up run.
        init_memory_bytes: growth of ru_maxrss from the program's start until the model was ready.
        overall_memory_bytes: the same growth until the last run.
    """

    summary: ToolSummary
    min_ns: int | None
    max_ns: int | None
    init_ns: int | None
    first_inference_ns: int | None
    warmup_ns: int | None
    warmup_runs: int | None
    init_memory_bytes: int | None
    overall_memory_bytes: int | None


def judged(ns: Mapping[str, float], count: int, n_warmup: int, memory: Memory) -> BenchmarkFigures:
    """The figures of any of the three forms.

    Args:
        ns: times by name; only `mean` is required.
        count: timed runs.
        n_warmup: runs of the warm-up, the first inference included.
        memory: growth that is not judged yet.

    Raises:
        BadOutputError: no run was timed, or a figure is not plausible.
    """
    if count < 1:
        raise not_a_result("no run was timed")

    def known(name: str) -> int | None:
        return to_ns(ns[name], 1, f"the time {name!r}") if name in ns else None

    def latency(name: str) -> int | None:
        return to_latency_ns(ns[name], 1, f"the {name}") if name in ns else None

    mean_ns, median_ns, first_ns = (
        to_latency_ns(ns["mean"], 1, "the mean"),
        latency("median"),
        known("first"),
    )
    has_warmup = first_ns is not None and "warmup" in ns and n_warmup > 0
    # The mean has few digits: for two runs the sum may be below the first run.
    total_ns = to_ns(ns["warmup"] * n_warmup, 1, "the warm-up time") if has_warmup else 0
    return BenchmarkFigures(
        summary=ToolSummary(
            count=count,
            latency_ns=mean_ns if median_ns is None else median_ns,
            # Old builds print only the mean.
            statistic=Statistic.MEAN if median_ns is None else Statistic.MEDIAN,
            mean_ns=mean_ns,
            std_ns=known("std"),
            p95_ns=latency("p95"),
        ),
        min_ns=known("min"),
        max_ns=known("max"),
        init_ns=known("init"),
        first_inference_ns=first_ns,
        warmup_ns=max(0, total_ns - (first_ns or 0)) if has_warmup else None,
        warmup_runs=n_warmup - 1 if has_warmup else None,
        init_memory_bytes=_grown(memory[0]),
        overall_memory_bytes=_grown(memory[1]),
    )


def _grown(n_bytes: float | None) -> int | None:
    """A growth of ru_maxrss; zero or less is not a reading.

    The program's process inherits the high-water mark of its parent: growth below this mark is not
    visible. No model runs without memory.
    """
    if n_bytes is None or n_bytes <= 0:
        return None
    MEMORY_BYTES.require(n_bytes, f"{n_bytes:g} bytes")
    return round(n_bytes)

"""The figures of one run of `benchmark_model`, from its text or its result file."""

from dataclasses import dataclass

from fleetrank.device_agents.contract.measurement import ToolSummary
from fleetrank.device_agents.device_output.plausible import MEMORY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFigures:
    """The figures of one run, in the project's units.

    Percentiles are the sample at index floor(n * p / 100) of the sorted ones, not interpolated
    (so the median of two is the larger). Source: `StatWithPercentiles` of TensorFlow's
    stats_calculator.h.

    Attributes:
        min_ns: of the timed runs; the same for `max_ns`.
        has_median: if false, `summary.median_ns` is the mean: old builds print only the mean.
        warmup_runs: runs after the first inference, which the tool counts as a warm-up run.
        init_memory_bytes: growth of ru_maxrss from the tool's start until the model was ready.
        overall_memory_bytes: the same growth until the last run.
    """

    summary: ToolSummary
    min_ns: int | None
    max_ns: int | None
    has_median: bool
    init_ns: int | None
    first_inference_ns: int | None
    warmup_ns: int | None
    warmup_runs: int | None
    init_memory_bytes: int | None
    overall_memory_bytes: int | None


def grown_bytes(n_bytes: float) -> int | None:
    """A growth of ru_maxrss; zero or less is not a reading.

    The tool's process inherits the high-water mark of its parent: growth below this mark is not
    visible. No model runs without memory.

    Raises:
        BadOutputError: more memory than any computer has.
    """
    if n_bytes <= 0:
        return None
    MEMORY_BYTES.require(n_bytes, f"{n_bytes:g} bytes")
    return round(n_bytes)

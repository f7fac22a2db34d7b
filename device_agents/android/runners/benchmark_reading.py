"""What one run of `benchmark_model` says, whichever way it said it: as text or as a file."""

from dataclasses import dataclass

from fleetrank.device_agents.contract.measurement import ToolSummary
from fleetrank.device_agents.device_output.plausible import MEMORY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFigures:
    """The figures of one run, in the project's units.

    Percentiles are the sample at index floor(n * p / 100) of the sorted ones, never interpolated
    (so the median of two is the larger). Source: `StatWithPercentiles` of TensorFlow's
    stats_calculator.h.

    Attributes:
        min_ns: of the timed runs; the same for `max_ns`.
        has_median: when false, `summary.median_ns` is the mean: old builds print nothing else.
        warmup_runs: after the first inference, which the tool counts as one of them.
        init_memory_bytes: growth of ru_maxrss from the tool's start until the model was ready.
        overall_memory_bytes: the same until the last run.
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
    """A growth of ru_maxrss; zero and less are no reading.

    The high-water mark of the process that started the tool is inherited: below it nothing is
    seen to grow. A model that runs in no memory does not exist.

    Raises:
        BadOutputError: more than any computer has.
    """
    if n_bytes <= 0:
        return None
    MEMORY_BYTES.require(n_bytes, f"{n_bytes:g} bytes")
    return round(n_bytes)

"""Time that the host adds to a device's own time: the gap between the two clocks."""

from collections.abc import Sequence
from statistics import median

MAX_SHARE = 0.10
MAX_GAP_NS = 100_000
"""A gap below either limit is normal: launching, and reporting the end, take 10 to 50 us."""
CLOCK_STEP_NS = 1_000
"""CUDA events count in steps of half a microsecond; a difference has the error of two steps."""


def host_overhead_ns(
    samples_ns: Sequence[int], device_samples_ns: Sequence[int] | None
) -> float | None:
    """Median over the inferences of wall clock less device clock; `None` without both."""
    if not samples_ns or device_samples_ns is None or len(samples_ns) != len(device_samples_ns):
        return None
    pairs = zip(samples_ns, device_samples_ns, strict=True)
    return float(median(wall - device for wall, device in pairs))


def has_overhead(samples_ns: Sequence[int], overhead_ns: float | None) -> bool:
    """Whether the gap is more than a tenth of the latency and more than 100 us."""
    if overhead_ns is None:
        return False
    return overhead_ns > max(MAX_SHARE * median(samples_ns), MAX_GAP_NS)


def is_impossible(overhead_ns: float | None) -> bool:
    """Whether the device reports more time than passed on the wall clock."""
    return overhead_ns is not None and overhead_ns < -CLOCK_STEP_NS

"""What the host adds to a device's own time: the gap between both clocks, and what it tells."""

from collections.abc import Sequence
from statistics import median

MAX_SHARE = 0.10
MAX_GAP_NS = 100_000
"""A gap within either is normal: launching, and the way back of 'done', take 10 to 50 us."""
CLOCK_STEP_NS = 1_000
"""CUDA events count in steps of half a microsecond; two of them make a difference."""


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
    """Whether the device claims more time than went by on the wall."""
    return overhead_ns is not None and overhead_ns < -CLOCK_STEP_NS

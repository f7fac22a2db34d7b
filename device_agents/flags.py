"""Quality flags of one row: thresholds with their sources, and the function that applies them.

A flag does not discard a row; the analysis decides, and reports how many rows it discarded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles

from fleetrank.device_agents.contract.measurement import Conditions
from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.foundation.units import NS_PER_S
from fleetrank.foundation.vocabulary import Flag

MAX_SPREAD = 0.10
"""IQR / median. Source: torch.utils.benchmark warns of an IQR above 10 % of the median."""
OUTLIER_MADS = 3.0
MAD_SCALE = 1.4826
"""Factor from the median absolute deviation of normal samples to their standard deviation."""
MAX_OUTLIER_SHARE = 0.05
"""A normal sample has 0.3 % beyond 3 sigma; 5 % beyond means a second regime, not noise."""
MAX_DRIFT = 0.02
"""Between first and last third: the tolerance of the warm-up, applied until the end."""
MAX_SWITCHES_PER_RUN = 0.1
"""One forced context switch in 10 runs puts preemption inside the 90th percentile."""
MIN_CLOCK_RATIO = 0.85
"""A clock 15 % below its start counts as throttled, as is usual in phone benchmarks."""
MAX_TEMP_C = 90.0
"""Server and desktop CPUs throttle at 95 to 105 degrees; this limit is just below."""
MAX_BUSY_SHARE = 0.10
"""Share of all cores' time. A busy core beside 2-thread runs made them 2 to 100 times slower."""
NOTHING_SLOWS = "none"
"""The value of a GPU's throttle reasons if none applies."""
MAX_STEAL_SHARE = 0.05
"""To a guest, other guests of the hypervisor are also other users of the host."""
MAX_OVERHEAD_SHARE = 0.10
MAX_OVERHEAD_NS = 100_000
"""Wall clock less device clock. A gap below either limit is normal: launching, and reporting the
end, take 10 to 50 us."""
CLOCK_STEP_NS = 1_000
"""CUDA events count in steps of half a microsecond; a difference has the error of two steps."""
MIN_SAMPLES_TO_JUDGE = 6
"""Fewer samples are too few for thirds and quartiles; their flag is `too_few` anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The data that the flags of one row depend on; `None` means unknown and raises no flag.

    Attributes:
        samples_ns: the samples; of `generate` the medians of its sequences.
        n_runs: timed runs, if they are more than the samples.
        has_met_quota: a CPU quota stopped the process while it was timed.
        observed_ns: of all timed runs together; `None` if it is the sum of the samples.
        copies_state, has_loop_overhead, has_nan: the flags of those names apply.
    """

    samples_ns: Sequence[int]
    device_samples_ns: Sequence[int] | None = None
    is_warmup_stable: bool = True
    involuntary_switches: int | None = None
    niceness: int | None = None
    has_met_quota: bool = False
    before: Conditions | None = None
    after: Conditions | None = None
    n_runs: int | None = None
    observed_ns: int | None = None
    copies_state: bool = False
    has_loop_overhead: bool = False
    has_nan: bool = False


def judge(seen: Seen, policy: MeasurePolicy) -> tuple[Flag, ...]:
    """All flags that apply to one row, in the order of the vocabulary."""
    samples = seen.samples_ns
    overhead = host_overhead_ns(samples, seen.device_samples_ns)
    doubts = {
        Flag.SPREAD: has_spread(samples),
        Flag.OUTLIERS: has_outliers(samples),
        Flag.DRIFT: has_drift(samples),
        Flag.PREEMPTED: _is_preempted(seen),
        Flag.THROTTLED: _is_throttled(seen.before, seen.after),
        Flag.HOT: any(_exceeds(c.temp_c, MAX_TEMP_C) for c in _known(seen)),
        Flag.TOO_FEW: is_too_few(
            len(samples), sum(samples) if seen.observed_ns is None else seen.observed_ns, policy
        ),
        Flag.NICED: _exceeds(seen.niceness, 0),
        Flag.CPU_QUOTA: seen.has_met_quota,
        Flag.BUSY_HOST: any(
            _exceeds(c.busy_share, MAX_BUSY_SHARE) or _exceeds(c.steal_share, MAX_STEAL_SHARE)
            for c in _known(seen)
        ),
        Flag.UNSTABLE_WARMUP: not seen.is_warmup_stable,
        Flag.SHARED_DEVICE: any(_exceeds(c.other_processes, 0) for c in _known(seen)),
        Flag.HOST_OVERHEAD: has_overhead(samples, overhead),
        Flag.CLOCKS_DISAGREE: is_impossible(overhead),
        Flag.CACHE_COPIED: seen.copies_state,
        Flag.LOOP_OVERHEAD: seen.has_loop_overhead,
        Flag.NAN_OUTPUTS: seen.has_nan,
    }
    return tuple(flag for flag in Flag if doubts.get(flag, False))


def is_too_few(count: int, observed_ns: int, policy: MeasurePolicy) -> bool:
    """Whether runs are fewer, or took less time together, than the policy asks for.

    Of runs for a given time as few as thirds need: their number is not chosen.
    """
    if policy.min_time_s > 0:
        return count < MIN_SAMPLES_TO_JUDGE
    fewest = min(policy.min_runs, policy.max_samples)
    return count < fewest or observed_ns < policy.min_observed_s * NS_PER_S


def has_spread(samples: Sequence[int]) -> bool:
    """Whether the interquartile range is large relative to the median."""
    if len(samples) < MIN_SAMPLES_TO_JUDGE:
        return False
    low, middle, high = quantiles(samples, n=4, method="inclusive")
    return high - low > MAX_SPREAD * middle


def has_outliers(samples: Sequence[int]) -> bool:
    """Whether too many samples are far from the median, measured in their own MAD."""
    if len(samples) < MIN_SAMPLES_TO_JUDGE:
        return False
    middle = median(samples)
    reach = OUTLIER_MADS * MAD_SCALE * median(abs(sample - middle) for sample in samples)
    far = sum(abs(sample - middle) > reach for sample in samples)
    return far > MAX_OUTLIER_SHARE * len(samples)


def has_drift(samples: Sequence[int]) -> bool:
    """Whether the first and the last third of the run differ; see `drift_share`."""
    share = drift_share(samples)
    return share is not None and share > MAX_DRIFT


def drift_share(samples: Sequence[int]) -> float | None:
    """Difference of first and last third, as a share of the smaller; `None` with too few samples.

    Each third is used without its lowest and highest quarter: the mean of all samples would follow
    one spike, and the median jumps between the two modes of a latency that has two.
    """
    if len(samples) < MIN_SAMPLES_TO_JUDGE:
        return None
    third = len(samples) // 3
    first, last = _midmean(samples[:third]), _midmean(samples[-third:])
    return abs(first - last) / min(first, last) if min(first, last) > 0 else None


def _midmean(samples: Sequence[int]) -> float:
    quarter = len(samples) // 4
    return fmean(sorted(samples)[quarter : len(samples) - quarter])


def _is_preempted(seen: Seen) -> bool:
    runs = len(seen.samples_ns) if seen.n_runs is None else seen.n_runs
    return _exceeds(seen.involuntary_switches, MAX_SWITCHES_PER_RUN * runs)


def _is_throttled(before: Conditions | None, after: Conditions | None) -> bool:
    reasons = {c.throttle_reasons for c in (before, after) if c is not None}
    if reasons - {None, NOTHING_SLOWS}:
        return True
    if before is None or after is None or before.clock_mhz is None or after.clock_mhz is None:
        return False
    return after.clock_mhz < MIN_CLOCK_RATIO * before.clock_mhz


def _known(seen: Seen) -> list[Conditions]:
    return [conditions for conditions in (seen.before, seen.after) if conditions is not None]


def _exceeds(value: float | None, limit: float) -> bool:
    return value is not None and value > limit


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
    return overhead_ns > max(MAX_OVERHEAD_SHARE * median(samples_ns), MAX_OVERHEAD_NS)


def is_impossible(overhead_ns: float | None) -> bool:
    """Whether the device reports more time than passed on the wall clock."""
    return overhead_ns is not None and overhead_ns < -CLOCK_STEP_NS

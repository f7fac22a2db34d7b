"""The timing loop, and the rule that decides when there are enough samples.

Clock and stop rule are arguments, so that tests pass their own clock. The rule is a pure function
of the times so far. Its interval is for one process and only decides how long to continue.
Processes differ by more than this interval, so it is never shown as the uncertainty of a latency.
"""

import gc
import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from statistics import NormalDist, fmean, median, quantiles
from typing import Protocol

from fleetrank.device_agents.contract.measurement import Conditions
from fleetrank.device_agents.contract.task import BlockPolicy, MeasurePolicy
from fleetrank.foundation.vocabulary import NS_PER_S, Flag

_Z_95 = 1.959963984540054

MIN_SAMPLES = 6
"""With fewer samples no 95 % interval of the median exists: 2 x 0.5^5 > 0.05."""

GROWTH = 1.5
"""Ratio of successive checks: sorting costs little, and at most half the runs are wasted."""


def median_half_width(samples: Sequence[int]) -> float | None:
    """Half-width of the 95 % interval of the median, as a share of the median.

    The interval is between two order statistics and assumes no distribution, only independence.
    `None` with fewer than `MIN_SAMPLES` samples or a median of 0.

    Source: J.-Y. Le Boudec, Performance Evaluation of Computer and Communication Systems (2010),
        theorem 2.1 and its normal approximation: ranks floor(0.5 n - 0.98 sqrt n) and
        ceil(0.5 n + 1 + 0.98 sqrt n).
    """
    n = len(samples)
    if n < MIN_SAMPLES:
        return None
    ordered = sorted(samples)
    reach = _Z_95 / 2 * math.sqrt(n)
    low = max(math.floor(0.5 * n - reach), 1)
    high = min(math.ceil(0.5 * n + 1 + reach), n)
    median = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    if median == 0:
        return None
    return (ordered[high - 1] - ordered[low - 1]) / 2 / median


def check_points(min_runs: int, max_samples: int) -> Iterator[int]:
    """Numbers of runs at which stopping is considered: `min_runs`, growing, to `max_samples`."""
    point = max(min_runs, 1)
    while point < max_samples:
        yield point
        point = math.ceil(point * GROWTH)
    yield max_samples


def halves_agree(cumulative_ns: Sequence[int], tolerance: float) -> bool:
    """Whether the mean times of both halves of the runs differ by at most `tolerance`.

    Args:
        cumulative_ns: sum of the times up to and including each run.
        tolerance: share of the smaller mean.
    """
    n = len(cumulative_ns)
    half = n // 2
    if half == 0:
        return False
    first = cumulative_ns[half - 1] / half
    second = (cumulative_ns[n - 1] - cumulative_ns[n - half - 1]) / half
    return abs(first - second) <= tolerance * min(first, second)


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfWidthRule:
    """Stops the timed runs by the measuring protocol's policy; it fulfils `StopRule`."""

    policy: MeasurePolicy

    def check_points(self) -> Iterator[int]:
        """Yields the numbers of runs at which the rule is checked."""
        return check_points(self.policy.min_runs, self.policy.max_samples)

    def is_enough(self, samples: Sequence[int]) -> bool:
        """Whether the samples so far took long enough and their median is known well enough."""
        if sum(samples) < self.policy.min_observed_s * NS_PER_S:
            return False
        width = median_half_width(samples)
        return width is not None and width < self.policy.half_width


Clock = Callable[[], int]
"""Monotonic nanoseconds: `time.perf_counter_ns`."""
Step = Callable[[], None]
"""One synchronised inference."""

_MAX_SUMS = 1024
"""Limit of stored sums of the warm-up; a million short runs must not change the model's memory."""


class Untimed(Protocol):
    """Work around each run that is not timed."""

    def before(self) -> None:
        """Called before the first clock reading, for example to flush caches."""
        ...

    def after(self) -> None:
        """Called after the second clock reading, for example to read a device's clock."""
        ...


class NothingUntimed:
    """The `Untimed` of a device without its own clock and cache."""

    def before(self) -> None:
        """Does nothing."""

    def after(self) -> None:
        """Does nothing."""


NOTHING = NothingUntimed()


class StopRule(Protocol):
    """Decides when there are enough timed runs."""

    def check_points(self) -> Iterator[int]:
        """Increasing numbers of runs at which `is_enough` is asked; the last one ends the runs."""
        ...

    def is_enough(self, samples: Sequence[int]) -> bool:
        """Whether these samples, in nanoseconds and in order, suffice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """The result of the warm-up; `is_stable` is false if it ended at its time limit."""

    ns: int
    runs: int
    is_stable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRuns:
    """The samples in order, and why they ended: `half_width max_time max_samples`."""

    samples_ns: tuple[int, ...]
    stop_reason: str


def warm_up(step: Step, clock: Clock, policy: MeasurePolicy, untimed: Untimed = NOTHING) -> WarmUp:
    """Runs until the two halves of the latest window of runs agree, within the policy's limits.

    A window is judged when it has the minimum number of runs and the minimum duration. If it has
    twice both and its halves still differ, a new window starts, so that one slow start or one spike
    does not affect the average of the next thousand runs. The limit `max_warmup_s` is checked after
    each run: one run that is longer than the limit is the last.
    """
    runs = 0
    begin = window_begin = clock()
    window = _Window()
    while True:
        untimed.before()
        start = clock()
        step()
        end = clock()
        untimed.after()
        runs += 1
        window.add(end - start)
        length_s = (end - window_begin) / NS_PER_S
        is_long_enough = window.runs >= policy.min_warmup_runs and length_s >= policy.min_warmup_s
        is_stable = is_long_enough and halves_agree(window.sums, policy.warmup_tolerance)
        if is_stable or end - begin >= policy.max_warmup_s * NS_PER_S:
            return WarmUp(ns=end - begin, runs=runs, is_stable=is_stable)
        if window.runs >= 2 * policy.min_warmup_runs and length_s >= 2 * policy.min_warmup_s:
            window, window_begin = _Window(), end


class _Window:
    """Sums of run times, thinned so that a million short runs take no more memory."""

    def __init__(self) -> None:
        self.runs = 0
        self.sums: list[int] = []
        self._total_ns = 0
        self._stride = 1

    def add(self, ns: int) -> None:
        self.runs += 1
        self._total_ns += ns
        if self.runs % self._stride == 0:
            self.sums.append(self._total_ns)
        if len(self.sums) == _MAX_SUMS:
            self.sums, self._stride = self.sums[1::2], 2 * self._stride


def time_runs(
    step: Step,
    clock: Clock,
    rule: StopRule,
    *,
    max_time_s: float,
    untimed: Untimed = NOTHING,
) -> TimedRuns:
    """Times runs until the rule is satisfied, its last check point is reached, or time is over.

    Storage for all samples is allocated before, and garbage collection is off. Between the two
    clock readings only the step runs. At least one run is timed.
    """
    points = list(rule.check_points())
    samples = array("q", bytes(8 * points[-1]))
    with collection_off():
        deadline = clock() + int(max_time_s * NS_PER_S)
        for begin, end in pairwise([0, *points]):
            count = fill(samples, begin, end, (step, clock, deadline), untimed)
            if count < end:
                return TimedRuns(samples_ns=tuple(samples[:count]), stop_reason="max_time")
            if rule.is_enough(samples[:count]):
                return TimedRuns(samples_ns=tuple(samples[:count]), stop_reason="half_width")
    return TimedRuns(samples_ns=tuple(samples), stop_reason="max_samples")


def fill(
    samples: "array[int]", begin: int, end: int, how: tuple[Step, Clock, int], untimed: Untimed
) -> int:
    """Times runs `begin` to `end` into the array; returns how many exist at the deadline.

    Args:
        samples: storage, at least `end` long.
        begin: index of the first run.
        end: index after the last run.
        how: one inference, the clock, and the time on it after which no run starts.
        untimed: around each run.
    """
    step, clock, deadline = how
    before, after = untimed.before, untimed.after
    for index in range(begin, end):
        before()
        start = clock()
        step()
        stop = clock()
        after()
        samples[index] = stop - start
        if stop >= deadline:
            return index + 1
    return end


@contextmanager
def collection_off() -> Iterator[None]:
    """Collects once, then disables the garbage collector; does nothing if it is already disabled.

    A collection cools the caches, so it runs before the warm-up.
    """
    if not gc.isenabled():
        yield
        return
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# The order of the cells in a round, and the rule that ends the round.

_CONFIDENCE = 0.95


def orders(n_cells: int, seed: int) -> Iterator[tuple[int, ...]]:
    """The order of the cells in each cycle of blocks, without end.

    Seeded random; every second cycle reverses the one before it, so that a linear drift affects
    all cells of the two cycles equally.
    """
    random = Random(seed)  # noqa: S311 - an order, not a secret
    while True:
        order = list(range(n_cells))
        random.shuffle(order)
        yield tuple(order)
        yield tuple(reversed(order))


def difference_half_width(block_medians: Sequence[Sequence[float]]) -> float | None:
    """Half-width of the 95 % interval of the difference between two cells' mean log latencies.

    Model: log latency = cell + block + rest. The rest is pooled over all cells, with
    (n_cells - 1)(n_blocks - 1) degrees of freedom, as in a two-way layout without replication
    (R. A. Fisher, The Design of Experiments, 1935: randomised blocks).

    Args:
        block_medians: medians in ns, by cell (at least 2) and block; the same number of blocks.

    Returns:
        The half-width, as a natural logarithm (0.01 is 1 %); `None` with fewer than 2 blocks or
        cells.
    """
    n_cells, n_blocks = len(block_medians), min(map(len, block_medians), default=0)
    if n_cells < 2 or n_blocks < 2:
        return None
    logs = [[math.log(median) for median in medians[:n_blocks]] for medians in block_medians]
    blocks = [fmean(column) for column in zip(*logs, strict=True)]
    rest = [
        value - fmean(row) - block + fmean(blocks)
        for row in logs
        for value, block in zip(row, blocks, strict=True)
    ]
    freedom = (n_cells - 1) * (n_blocks - 1)
    variance = sum(value * value for value in rest) / freedom
    return student_t(freedom) * math.sqrt(2 * variance / n_blocks)


def student_t(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, to 1 % from 3 degrees of freedom on.

    The measuring process has no SciPy. With 1 or 2 degrees of freedom the exact values are used.

    Source: Cornish-Fisher expansion, Abramowitz and Stegun (1964), formula 26.7.5.
    """
    exact = {1: 12.706, 2: 4.303}
    if freedom in exact:
        return exact[freedom]
    z = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


# The timed runs of one block of a round.
#
# A host's speed changes within seconds. Cells that take turns of a fraction of a second meet the
# same states of the host, so their ratios vary less than those of cells measured one after the
# other.
#
# Source: L. Bulej et al., Duet Benchmarking: Improving Measurement Accuracy in the Cloud, ICPE
#     2020, for two versions of one program; here any number of cells take turns.

_NEVER_NS = 2**63
"""Later than any time of the clock."""
_MAX_BLOCK_SAMPLES = 100_000
"""Storage of one block: 0.8 MB; a run of 4 us fills a block of 0.4 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRuns:
    """The times of one block, in nanoseconds and in order."""

    left_out_ns: tuple[int, ...]
    samples_ns: tuple[int, ...]


def time_block(
    step: Step, clock: Clock, policy: BlockPolicy, untimed: Untimed = NOTHING
) -> BlockRuns:
    """Times the runs of one block; at least one run is a sample.

    Args:
        step: one synchronised inference.
        clock: monotonic nanoseconds.
        policy: duration and runs left out.
        untimed: around each run; the first runs of a block have only its `before`.
    """
    samples = array("q", bytes(8 * _MAX_BLOCK_SAMPLES))
    left_out = array("q", bytes(8 * policy.left_out_runs))
    fill(left_out, 0, policy.left_out_runs, (step, clock, _NEVER_NS), _OnlyBefore(untimed))
    deadline = clock() + int(policy.block_s * NS_PER_S)
    count = fill(samples, 0, _MAX_BLOCK_SAMPLES, (step, clock, deadline), untimed)
    return BlockRuns(left_out_ns=tuple(left_out), samples_ns=tuple(samples[:count]))


class _OnlyBefore:
    """Prepares a run as `untimed` does, and reads nothing after it."""

    def __init__(self, untimed: Untimed) -> None:
        self.before = untimed.before

    def after(self) -> None:
        """Does nothing."""


# Timed runs back to back for a given time, however many they are: sustained throughput.

MIN_TIME = "min_time"
"""Why such runs end; `max_samples` if there were too many."""
MOST_RUNS = 500_000
"""A repeat is one message of at most 16 MB; so many runs, each with a second clock, fit into it."""
_FIRST_RUNS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRuns:
    """The runs, the start of the first one, and the time from it to the end of the last one."""

    runs: TimedRuns
    start_ns: int
    wall_ns: int


def time_for(
    step: Step, clock: Clock, min_time_s: float, untimed: Untimed = NOTHING, most: int = MOST_RUNS
) -> LongRuns:
    """Times runs until one ends `min_time_s` or more after the start of the first.

    Each run is timed as in `timing.time_runs`. Storage grows between two runs, by half of what
    there is, so that it takes no time inside of one.

    Args:
        step: one synchronised inference.
        clock: monotonic nanoseconds.
        min_time_s: above 0.
        untimed: around each run; its time is part of the wall time.
        most: runs at most, at least 1.
    """
    samples = array("q", bytes(8 * min(_FIRST_RUNS, most)))
    with collection_off():
        start = end = clock()
        deadline = start + int(min_time_s * NS_PER_S)
        count = 0
        while count < most and end < deadline:
            count = fill(samples, count, len(samples), (step, clock, deadline), untimed)
            end = clock()
            if count == len(samples):
                grown = min(count + count // 2 + 1, most)
                samples.frombytes(bytes(8 * (grown - count)))
    reason = MIN_TIME if end >= deadline else "max_samples"
    runs = TimedRuns(samples_ns=tuple(samples[:count]), stop_reason=reason)
    return LongRuns(runs=runs, start_ns=start, wall_ns=end - start)


# The timed sequences of `generate`: a prompt and its steps, again and again.
#
# Steps of one sequence depend on one another, so the medians of whole sequences decide how long
# to continue, and the flags judge them too.

MIN_SEQUENCES = 3
"""Fewer have no median that one slow sequence cannot move."""
MAX_LOOP_SHARE = 0.05
"""Time between the runs of a sequence, as a share of the runs: above it the figure of a whole
sequence is not the sum of its parts. Seen: under 0.2 % with steps of 0.4 ms."""
_WARMUP_SEQUENCES = 2
"""The least whose halves can be compared; a sequence has dozens of runs."""
_NEVER_REACHED_NS = 2**63 - 1


class TwoPhases(Protocol):
    """The part of a `SequenceModel` that is timed."""

    def run(self) -> None:
        """Reads the prompt."""
        ...

    def step(self) -> None:
        """Makes the next token; the first call after `run` makes the first step."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSequences:
    """The times of whole sequences, in nanoseconds and in order.

    Attributes:
        prompts_ns: one per sequence.
        steps_ns: of all sequences; each has the same number.
        walls_ns: of whole sequences, with the time between their runs.
        stop_reason: as in `TimedRuns`.
    """

    prompts_ns: tuple[int, ...]
    steps_ns: tuple[int, ...]
    walls_ns: tuple[int, ...]
    stop_reason: str

    @property
    def medians_ns(self) -> tuple[int, ...]:
        """The median step of each sequence."""
        return _medians(self.steps_ns, len(self.steps_ns) // len(self.prompts_ns))

    @property
    def has_overhead(self) -> bool:
        """Whether the sequences took noticeably longer than their prompts and steps together."""
        parts_ns = sum(self.prompts_ns) + sum(self.steps_ns)
        return sum(self.walls_ns) > (1 + MAX_LOOP_SHARE) * parts_ns


def sequence_policy(policy: MeasurePolicy, steps: int) -> MeasurePolicy:
    """The policy in sequences of so many steps in place of single runs."""
    most = max(policy.max_samples // steps, 1)
    return replace(
        policy,
        min_warmup_runs=min(_WARMUP_SEQUENCES, policy.min_warmup_runs),
        min_runs=min(MIN_SEQUENCES, policy.min_runs, most),
        max_samples=most,
    )


def warm_up_sequences(
    model: TwoPhases, steps: int, clock: Clock, policy: MeasurePolicy, untimed: Untimed = NOTHING
) -> WarmUp:
    """Runs whole sequences as `warm_up` runs inferences; its runs are sequences."""

    def run_all() -> None:
        model.run()
        for _ in range(steps):
            model.step()

    return warm_up(run_all, clock, policy, untimed)


def time_sequences(
    model: TwoPhases, steps: int, clock: Clock, policy: MeasurePolicy, untimed: Untimed = NOTHING
) -> TimedSequences:
    """Times whole sequences until their medians are stable, or time or sequences are used up.

    At least one is timed, and `min_runs` of the policy unless its `max_time_s` ends them first.

    Args:
        model: what runs.
        steps: after each prompt, at least 1.
        clock: monotonic nanoseconds.
        policy: in sequences, as `sequence_policy` gives it.
        untimed: around each step; a prompt has only its `before`.
    """
    count = policy.max_samples
    samples, prompts, walls = (array("q", bytes(8 * n)) for n in (count * steps, count, count))
    points = set(_check_points(policy))
    done, reason = 0, "max_samples"
    with collection_off():
        deadline = clock() + int(policy.max_time_s * NS_PER_S)
        while done < count:
            untimed.before()
            start = clock()
            model.run()
            read = clock()
            first = done * steps
            fill(samples, first, first + steps, (model.step, clock, _NEVER_REACHED_NS), untimed)
            end = clock()
            prompts[done], walls[done] = read - start, end - start
            done += 1
            if done in points and _is_enough(
                samples[: done * steps], steps, sum(walls[:done]), policy
            ):
                reason = "half_width"
                break
            if end >= deadline:
                reason = "max_time"
                break
    return TimedSequences(
        prompts_ns=tuple(prompts[:done]),
        steps_ns=tuple(samples[: done * steps]),
        walls_ns=tuple(walls[:done]),
        stop_reason=reason,
    )


def _check_points(policy: MeasurePolicy) -> Iterator[int]:
    """Numbers of sequences at which the interval of their medians is asked."""
    point = max(policy.min_runs, MIN_SAMPLES)
    while point < policy.max_samples:
        yield point
        point = int(point * GROWTH) + 1


def _is_enough(samples: "array[int]", steps: int, observed_ns: int, policy: MeasurePolicy) -> bool:
    if observed_ns < policy.min_observed_s * NS_PER_S:
        return False
    half_width = median_half_width(_medians(samples, steps))
    return half_width is not None and half_width < policy.half_width


def _medians(samples: "tuple[int, ...] | array[int]", steps: int) -> tuple[int, ...]:
    starts = range(0, len(samples), steps)
    return tuple(round(median(samples[start : start + steps])) for start in starts)


# Quality flags of one row: thresholds with their sources, and the function that applies them.
#
# A flag does not discard a row; the analysis decides, and reports how many rows it discarded.

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

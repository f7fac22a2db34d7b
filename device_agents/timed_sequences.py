"""The timed sequences of `generate`: a prompt and its steps, again and again.

Steps of one sequence depend on one another, so the medians of whole sequences decide how long to
continue, and the flags judge them too.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Protocol

from fleetrank.device_agents.contract.task import MeasurePolicy
from fleetrank.device_agents.timing import (
    GROWTH,
    MIN_SAMPLES,
    NOTHING,
    Clock,
    Untimed,
    WarmUp,
    collection_off,
    fill,
    median_half_width,
    warm_up,
)
from fleetrank.foundation.units import NS_PER_S

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

"""Samples of a simulated device, drawn with the stop rules of real ones."""

import math
import random
from dataclasses import dataclass

from fleetrank.device_agents.contract.task import MeasurePolicy, MeasureTask
from fleetrank.device_agents.long_runs import time_for
from fleetrank.device_agents.simulated_options import SimulatedOptions
from fleetrank.device_agents.simulated_roofline import RepeatWork
from fleetrank.device_agents.timed_sequences import sequence_policy, time_sequences
from fleetrank.device_agents.timing import HalfWidthRule
from fleetrank.foundation.units import NS_PER_S

_WITHIN = 0.2
"""Noise within one process relative to noise between processes: see the unit of replication."""
_HEATING_S = 10.0
"""Phones need from seconds to minutes; shorter than a long repeat, so that it can be seen."""


def heated(heat: float, computed_ns: float) -> float:
    """The latency of a device that has computed this long, relative to a cool one."""
    return 1 - heat * math.expm1(-computed_ns / (_HEATING_S * NS_PER_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The drawn times of one repeat.

    Attributes:
        first_ns: one run without noise within the process: of the prompt, where there is one.
        run_ns: what one run of the warm-up takes.
        judged_ns: what the flags judge: the samples, or medians of whole sequences.
        sustained_ns: all runs together, if the policy has a `min_time_s`.
        prompts_ns: `None` without a prompt.
        steps: of one sequence; `None` without a prompt.
    """

    first_ns: float
    run_ns: float
    samples_ns: tuple[int, ...]
    judged_ns: tuple[int, ...]
    stop_reason: str
    sustained_ns: int | None = None
    prompts_ns: tuple[int, ...] | None = None
    steps: int | None = None


def draw(
    task: MeasureTask, work: RepeatWork, options: SimulatedOptions, rng: random.Random
) -> Drawn:
    """Draws one repeat: one factor for the process, and noise within it."""
    process = rng.lognormvariate(0.0, options.noise)
    sample_ns = work.sample_ns * process
    steps = task.execution.workload.steps
    if work.prompt_ns is not None and steps is not None:
        phases = _DrawnModel(work.prompt_ns * process, sample_ns, options, rng)
        return _draw_sequences(phases, steps, task.policy)
    if task.policy.min_time_s > 0:
        return _draw_long(sample_ns, task.policy.min_time_s, options, rng)
    samples, reason = _samples(task.policy, sample_ns, options, rng)
    return Drawn(
        first_ns=sample_ns,
        run_ns=sample_ns,
        samples_ns=samples,
        judged_ns=samples,
        stop_reason=reason,
    )


def _draw_long(
    sample_ns: float, min_time_s: float, options: SimulatedOptions, rng: random.Random
) -> Drawn:
    """Back-to-back runs on a device that gets hot, until the time is over."""
    now_ns = 0

    def run() -> None:
        nonlocal now_ns
        grown = heated(options.heat, now_ns)
        noise = rng.lognormvariate(0.0, options.noise * _WITHIN)
        now_ns += max(round(sample_ns * grown * noise), 1)

    found = time_for(run, lambda: now_ns, min_time_s)
    return Drawn(
        first_ns=sample_ns,
        run_ns=sample_ns,
        samples_ns=found.runs.samples_ns,
        judged_ns=found.runs.samples_ns,
        stop_reason=found.runs.stop_reason,
        sustained_ns=found.wall_ns,
    )


def _draw_sequences(model: "_DrawnModel", steps: int, policy: MeasurePolicy) -> Drawn:
    timed = time_sequences(model, steps, model.clock, sequence_policy(policy, steps))
    return Drawn(
        first_ns=model.prompt_ns,
        run_ns=model.prompt_ns + steps * model.step_ns,
        samples_ns=timed.steps_ns,
        judged_ns=timed.medians_ns,
        stop_reason=timed.stop_reason,
        prompts_ns=timed.prompts_ns,
        steps=steps,
    )


class _DrawnModel:
    """A decoder whose runs only advance a clock; it fulfils `TwoPhases`."""

    def __init__(
        self, prompt_ns: float, step_ns: float, options: SimulatedOptions, rng: random.Random
    ) -> None:
        self.prompt_ns, self.step_ns = prompt_ns, step_ns
        self._options, self._rng = options, rng
        self._now_ns = 0

    def clock(self) -> int:
        return self._now_ns

    def run(self) -> None:
        self._pass(self.prompt_ns)

    def step(self) -> None:
        self._pass(self.step_ns)

    def _pass(self, ns: float) -> None:
        grown = heated(self._options.heat, self._now_ns)
        noise = self._rng.lognormvariate(0.0, self._options.noise * _WITHIN)
        self._now_ns += max(round(ns * grown * noise), 1)


def _samples(
    policy: MeasurePolicy, process_ns: float, options: SimulatedOptions, rng: random.Random
) -> tuple[tuple[int, ...], str]:
    """Single runs on a device that gets hot."""
    rule = HalfWidthRule(policy=policy)
    sigma = options.noise * _WITHIN
    budget_ns = policy.max_time_s * NS_PER_S
    samples: list[int] = []
    elapsed_ns = 0
    for point in rule.check_points():
        while len(samples) < point:
            grown = heated(options.heat, elapsed_ns)
            samples.append(max(round(process_ns * grown * rng.lognormvariate(0.0, sigma)), 1))
            elapsed_ns += samples[-1]
            if elapsed_ns >= budget_ns:
                return tuple(samples), "max_time"
        if rule.is_enough(samples):
            return tuple(samples), "half_width"
    return tuple(samples), "max_samples"

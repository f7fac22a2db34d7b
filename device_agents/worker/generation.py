"""The runs of `generate` inside the worker: a prompt and its steps, with tokens made before."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleetrank.device_agents.contract.runtime import Array, LoadedModel, SequenceModel
from fleetrank.device_agents.contract.task import MeasurePolicy, MeasureTask
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.runtimes.made_inputs import make_inputs
from fleetrank.device_agents.timed_sequences import (
    TimedSequences,
    sequence_policy,
    time_sequences,
    warm_up_sequences,
)
from fleetrank.device_agents.timing import Untimed, WarmUp
from fleetrank.foundation.inputs import ModelInput


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRuns:
    """A loaded decoder, its steps after each prompt, and the policy in sequences."""

    model: SequenceModel
    steps: int
    policy: MeasurePolicy

    def warm_up(self, untimed: Untimed) -> WarmUp:
        """Runs whole sequences until they are stable."""
        return warm_up_sequences(self.model, self.steps, time.perf_counter_ns, self.policy, untimed)

    def timed(self, untimed: Untimed) -> TimedSequences:
        """Times whole sequences."""
        return time_sequences(self.model, self.steps, time.perf_counter_ns, self.policy, untimed)


def sequence_runs(model: LoadedModel, task: MeasureTask) -> SequenceRuns | None:
    """Puts the tokens of a sequence into the runtime's memory; `None` for all other workloads.

    The tokens are made before, as no runtime takes them from its own logits: the times hold no
    sampling.

    Raises:
        UnsupportedError: the runtime has no states here, or the cell is part of a round.
    """
    workload = task.execution.workload
    if workload.steps is None or workload.length is None:
        return None
    apart = f"measure prefill@{workload.length} and decode@{workload.context_tokens}"
    if not isinstance(model, SequenceModel):
        raise UnsupportedError(f"{workload} cannot run on backend {task.execution.backend}", apart)
    if task.blocks is not None:
        raise UnsupportedError(
            f"{workload} cannot take turns with other cells: a sequence is not interrupted",
            f"{apart}, or leave out the rounds",
        )
    model.set_inputs(make_inputs(_at(model.inputs, workload.length, workload.length), task.seed))
    model.set_steps(
        [_step(model.inputs, workload.length + n, task.seed + n) for n in range(workload.steps)]
    )
    return SequenceRuns(
        model=model,
        steps=workload.steps,
        policy=sequence_policy(task.policy, workload.steps),
    )


def _step(specs: Sequence[ModelInput], place: int, seed: int) -> list[Array]:
    """The inputs of the step at a position, without the states."""
    fixed = [spec for spec in specs if spec.state is None]
    return make_inputs(_at(fixed, place + 1, 1), seed)


def _at(specs: Sequence[ModelInput], end: int, tokens: int) -> list[ModelInput]:
    """The inputs for so many tokens that end before a position; their last axis counts tokens."""
    return [
        spec
        if spec.state is not None
        else replace(
            spec,
            shape=(*spec.shape[:-1], tokens),
            values=spec.values
            if spec.values.counts_to is None
            else replace(spec.values, counts_to=end),
        )
        for spec in specs
    ]

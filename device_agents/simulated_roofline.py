"""What one repeat takes on a simulated device, from the cost of its model."""

from collections.abc import Mapping
from dataclasses import dataclass

from fleetrank.device_agents.contract.task import Execution, MeasureTask, TokenCost
from fleetrank.foundation.vocabulary import WEIGHT_BYTES, Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a simulated device can do.

    Attributes:
        peak_gflops: arithmetic in 10^9 operations a second.
        bandwidth_gbps: memory in 10^9 bytes a second.
        overhead_us: added to every inference, whatever its size.
        efficiency: of each runtime.
    """

    peak_gflops: float
    bandwidth_gbps: float
    overhead_us: float
    memory_bytes: int
    efficiency: Mapping[Runtime, float]


def latency_ns(capacity: Capacity, macs: int, parameters: int, execution: Execution) -> float:
    """Time of one inference: the larger of computing and reading the weights, plus overhead.

    Source: S. Williams, A. Waterman, D. Patterson, Roofline (CACM 52(4), 2009).
    """
    compute_ns = 2 * macs * execution.batch / capacity.peak_gflops
    memory_ns = parameters * WEIGHT_BYTES[execution.precision] / capacity.bandwidth_gbps
    efficiency = capacity.efficiency[execution.runtime]
    return max(compute_ns, memory_ns) / efficiency + 1_000 * capacity.overhead_us


def token_ns(capacity: Capacity, cost: TokenCost, execution: Execution) -> float:
    """The same for an inference of a language model, whose cache is read and written too."""
    compute_ns = 2 * cost.macs / capacity.peak_gflops
    memory_ns = cost.moved_bytes / capacity.bandwidth_gbps
    efficiency = capacity.efficiency[execution.runtime]
    return max(compute_ns, memory_ns) / efficiency + 1_000 * capacity.overhead_us


def memory_bytes(macs: int, parameters: int, execution: Execution) -> int:
    """A plausible size: the weights, and activations that grow with the batch.

    Networks of the study have one activation for about 100 MACs; the figure has no other meaning.
    """
    size_bytes = WEIGHT_BYTES[execution.precision]
    return int(size_bytes * parameters) + int(size_bytes * execution.batch * macs) // 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatWork:
    """What one repeat takes.

    Attributes:
        sample_ns: one inference, or one step of `generate`.
        prompt_ns: the prompt before the steps; `None` for all other workloads.
        weight_bytes: read once, while the model is loaded.
    """

    sample_ns: float
    prompt_ns: float | None
    memory_bytes: int
    weight_bytes: int


def work_of(task: MeasureTask, capacity: Capacity) -> RepeatWork | None:
    """The work of a task; `None` if the cost of its model is unknown."""
    execution = task.execution
    if task.token_costs:
        *prompts, sample = task.token_costs
        return RepeatWork(
            sample_ns=token_ns(capacity, sample, execution),
            prompt_ns=token_ns(capacity, prompts[0], execution) if prompts else None,
            memory_bytes=sample.weight_bytes + sample.state_bytes,
            weight_bytes=sample.weight_bytes,
        )
    if task.macs_and_parameters is None:
        return None
    macs, parameters = task.macs_and_parameters
    return RepeatWork(
        sample_ns=latency_ns(capacity, macs, parameters, execution),
        prompt_ns=None,
        memory_bytes=memory_bytes(macs, parameters, execution),
        weight_bytes=parameters * 4,
    )

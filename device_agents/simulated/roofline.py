"""What one repeat takes on a simulated device, from the cost of its model."""

from dataclasses import dataclass

from fleetrank.device_agents.contract.task import Execution, MeasureTask, TokenCost
from fleetrank.device_agents.simulated.options import Capacity
from fleetrank.foundation.vocabulary import Precision

BITS_PER_VALUE = {
    Precision.FP64: 64, Precision.FP32: 32, Precision.FP16: 16, Precision.BF16: 16,
    Precision.INT8: 8, Precision.INT4: 4,
}  # fmt: skip


def latency_ns(capacity: Capacity, macs: int, parameters: int, execution: Execution) -> float:
    """Time of one inference: the larger of computing and reading the weights, plus overhead.

    Source: S. Williams, A. Waterman, D. Patterson, Roofline (CACM 52(4), 2009).
    """
    compute_ns = 2 * macs * execution.batch / capacity.peak_gflops
    size_bytes = BITS_PER_VALUE[execution.precision] / 8
    memory_ns = parameters * size_bytes / capacity.bandwidth_gbps
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
    bits = BITS_PER_VALUE[execution.precision]
    return bits * parameters // 8 + bits * execution.batch * macs // 800


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
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


def work_of(task: MeasureTask, capacity: Capacity) -> Work | None:
    """The work of a task; `None` if the cost of its model is unknown."""
    execution = task.execution
    if task.token_costs:
        *prompts, sample = task.token_costs
        return Work(
            sample_ns=token_ns(capacity, sample, execution),
            prompt_ns=token_ns(capacity, prompts[0], execution) if prompts else None,
            memory_bytes=sample.weight_bytes + sample.state_bytes,
            weight_bytes=sample.weight_bytes,
        )
    if task.macs_and_parameters is None:
        return None
    macs, parameters = task.macs_and_parameters
    return Work(
        sample_ns=latency_ns(capacity, macs, parameters, execution),
        prompt_ns=None,
        memory_bytes=memory_bytes(macs, parameters, execution),
        weight_bytes=parameters * 4,
    )

"""Latency and memory of a device that does not exist, by the roofline model."""

from dataclasses import dataclass

from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.contract.vocabulary import Precision

BYTES_PER_VALUE = {Precision.FP32: 4, Precision.FP16: 2, Precision.BF16: 2, Precision.INT8: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """What bounds a device: arithmetic in 10^9 operations a second, memory in 10^9 bytes a second.

    `overhead_us` is added to every inference, whatever its size.
    """

    peak_gflops: float
    bandwidth_gbps: float
    overhead_us: float

    def latency_ns(self, macs: int, parameters: int, execution: Execution) -> float:
        """Time of one inference: the slower of computing and reading the weights, and overhead.

        Source: S. Williams, A. Waterman, D. Patterson, Roofline (CACM 52(4), 2009).
        """
        compute_ns = 2 * macs * execution.batch / self.peak_gflops
        memory_ns = parameters * BYTES_PER_VALUE[execution.precision] / self.bandwidth_gbps
        return max(compute_ns, memory_ns) + 1_000 * self.overhead_us


def memory_bytes(macs: int, parameters: int, execution: Execution) -> int:
    """A plausible size: the weights, and activations that grow with the batch.

    Networks of the study have one activation for about 100 MACs; nobody should read more into it.
    """
    size = BYTES_PER_VALUE[execution.precision]
    return size * parameters + size * execution.batch * macs // 100

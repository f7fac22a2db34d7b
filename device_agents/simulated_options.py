"""The properties of a simulated device."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOptions:
    """The properties of a simulated device; `None` stands for the value of its tier.

    Attributes:
        memory_bytes: a larger model fails with `out_of_memory`.
        efficiency_onnx: share of the peak and of the bandwidth that a runtime reaches; above 1 if
            it is better than the runtime that they were stated for. The others have the same
            meaning.
        noise: relative sigma between processes; samples of one process have a fifth of it.
        heat: relative growth of the latency of a hot device. Each repeat starts on a cool one;
            after 10 s of computing the latency has 63 % of the growth.
        crash_rate: share of tasks that end with a crash.
        loss_rate: share of tasks that the device does not answer; they are tried again.
        duration_s: real time a repeat takes.
    """

    tier: str = "cpu"
    peak_gflops: float | None = None
    bandwidth_gbps: float | None = None
    overhead_us: float | None = None
    memory_bytes: int | None = None
    efficiency_onnx: float | None = None
    efficiency_torch: float | None = None
    efficiency_tflite: float | None = None
    efficiency_executorch: float | None = None
    noise: float = 0.0
    heat: float = 0.0
    seed: int = 0
    device_model: str = "simulated"
    crash_rate: float = 0.0
    loss_rate: float = 0.0
    duration_s: float = 0.0

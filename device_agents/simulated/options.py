"""The options of a simulated device, and what its tier stands for where they say nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

from fleetrank.device_agents.contract.agent import read_fields
from fleetrank.device_agents.contract.kind import DeviceOptions
from fleetrank.device_agents.errors import PermanentError
from fleetrank.foundation.vocabulary import Runtime, Tier

_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOptions:
    """The properties of a simulated device; `None` stands for the value of its tier.

    Attributes:
        memory_bytes: a larger model fails with `out_of_memory`.
        efficiency_onnx: share of the peak and of the bandwidth that a runtime reaches; above 1 if
            it is better than the runtime that they were stated for. The others have the same
            meaning.
        noise: relative sigma between processes; samples of one process have a fifth of it.
        drift: relative growth of the latency from the first to the last sample.
        crash_rate: share of tasks that end with a crash. The rates of timeouts and of transient
            losses have the same meaning.
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
    drift: float = 0.0
    seed: int = 0
    device_model: str = "simulated"
    crash_rate: float = 0.0
    timeout_rate: float = 0.0
    transient_rate: float = 0.0
    duration_s: float = 0.0


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


_TIERS: Mapping[Tier, Capacity] = MappingProxyType(
    {
        Tier.GPU: Capacity(
            peak_gflops=8_000.0,
            bandwidth_gbps=300.0,
            overhead_us=300.0,
            memory_bytes=16 * _GIB,
            efficiency={
                Runtime.ONNX: 1.0,
                Runtime.TORCH: 0.8,
                Runtime.TFLITE: 0.6,
                Runtime.EXECUTORCH: 0.6,
            },
        ),
        Tier.CPU: Capacity(
            peak_gflops=100.0,
            bandwidth_gbps=20.0,
            overhead_us=50.0,
            memory_bytes=16 * _GIB,
            efficiency={
                Runtime.ONNX: 1.0,
                Runtime.TORCH: 0.7,
                Runtime.TFLITE: 0.8,
                Runtime.EXECUTORCH: 0.75,
            },
        ),
        Tier.EDGE: Capacity(
            peak_gflops=40.0,
            bandwidth_gbps=10.0,
            overhead_us=100.0,
            memory_bytes=8 * _GIB,
            efficiency={
                Runtime.ONNX: 1.0,
                Runtime.TORCH: 0.6,
                Runtime.TFLITE: 1.3,
                Runtime.EXECUTORCH: 1.2,
            },
        ),
    }
)
"""Magnitudes, in fp32.

GPU: NVIDIA T4, 8.1 TFLOP/s, 320 GB/s, 16 GB (its data sheet, 2019); the overhead is 60 kernels at
5 microseconds. CPU: one core with AVX2 at 3 GHz (two units, 8 lanes, multiply and add: 96 GFLOP/s)
and one channel of DDR4-2666 (21 GB/s). Edge: one Cortex-A78 at 2.4 GHz (two units, 4 lanes,
multiply and add: 38 GFLOP/s) and a third of the 34 GB/s of a phone's LPDDR4X-4266.
The efficiencies are round numbers of the order by which runtimes differ: TFLite and ExecuTorch use
XNNPACK, which is written for Arm first. They have no other meaning; `devices add --like` fits them.
"""
_RATES = ("crash_rate", "timeout_rate", "transient_rate")
_POSITIVE = (
    "peak_gflops", "bandwidth_gbps", "memory_bytes", *(f"efficiency_{word}" for word in Runtime),
)  # fmt: skip
_NOT_NEGATIVE = ("overhead_us", "noise", "seed", "duration_s", *_RATES)


def read_options(options: DeviceOptions) -> SimulatedOptions:
    """Checks the options of a device file.

    Raises:
        PermanentError: an unknown name, a wrong type, or a value out of range.
    """
    read = read_fields(SimulatedOptions, "simulated", options)
    if read.tier not in list(Tier):
        raise PermanentError(f"unknown tier {read.tier!r}", f"use one of: {', '.join(Tier)}")
    for name in _POSITIVE:
        _check(name, getattr(read, name), "above 0", is_allowed=lambda value: value > 0)
    for name in _NOT_NEGATIVE:
        _check(name, getattr(read, name), "at least 0", is_allowed=lambda value: value >= 0)
    _check("drift", read.drift, "above -1", is_allowed=lambda value: value > -1)
    if sum(getattr(read, name) for name in _RATES) > 1:
        raise PermanentError("fault rates must add up to at most 1", "lower the rates")
    return read


def capacity_of(options: SimulatedOptions) -> Capacity:
    """The capacity of a device: its options, and its tier where they say nothing."""
    of_tier = _TIERS[Tier(options.tier)]
    stated = {
        field.name: value
        for field in fields(Capacity)
        if (value := getattr(options, field.name, None)) is not None
    }
    efficiency = {
        runtime: getattr(options, f"efficiency_{runtime}") or usual
        for runtime, usual in of_tier.efficiency.items()
    }
    return replace(of_tier, efficiency=efficiency, **stated)


def _check(
    name: str, value: float | None, range_: str, *, is_allowed: Callable[[float], bool]
) -> None:
    if value is not None and not is_allowed(value):
        raise PermanentError(f"option {name} is {value}", f"it must be {range_}")

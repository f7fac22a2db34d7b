"""What runs on an NVIDIA GPU, by runtime: where runners, agent and worker all look."""

from collections.abc import Mapping
from dataclasses import dataclass

from device_agents.task import Execution
from device_agents.vocabulary import Mode, Precision, Runtime

CUDA = "cuda"
TENSORRT = "tensorrt"
GPU_BACKENDS = frozenset({CUDA, TENSORRT})

FLUSH_L2 = "flush_l2"
"""Overwrite the L2 cache before each run, untimed; needs PyTorch, in every runtime."""
TF32 = "tf32"
"""Let products of fp32 numbers round their factors to 10 bits, as PyTorch and ONNX Runtime do by
default in convolutions; off here, so that fp32 means fp32."""
CUDNN_BENCHMARK = "cudnn_benchmark"
"""PyTorch tries cuDNN's algorithms out in the first run; off, as PyTorch has it by default."""
TORCH_STREAM = "torch_stream"
"""ONNX Runtime works in a stream of PyTorch's, whose events then time it on the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRuntime:
    """What one runtime can do on a GPU."""

    backends: frozenset[str]
    modes: frozenset[Mode]
    precisions: frozenset[Precision]
    option_names: frozenset[str]


GPU_RUNTIMES: Mapping[Runtime, GpuRuntime] = {
    Runtime.TORCH: GpuRuntime(
        backends=frozenset({CUDA}),
        modes=frozenset({Mode.EAGER, Mode.COMPILE, Mode.GRAPHS}),
        precisions=frozenset({Precision.FP32, Precision.FP16, Precision.BF16}),
        option_names=frozenset({FLUSH_L2, TF32, CUDNN_BENCHMARK}),
    ),
    Runtime.ONNX: GpuRuntime(
        backends=frozenset({CUDA, TENSORRT}),
        modes=frozenset({Mode.EAGER, Mode.GRAPHS}),
        # Its CUDA provider lacks most operators in bfloat16, convolutions among them.
        precisions=frozenset({Precision.FP32, Precision.FP16}),
        option_names=frozenset({FLUSH_L2, TF32, TORCH_STREAM}),
    ),
}


def why_unsupported_on_gpu(execution: Execution) -> str | None:
    """Says what of this no NVIDIA GPU can do here, or `None`; loads no library."""
    name = execution.runtime.value
    runtime = GPU_RUNTIMES.get(execution.runtime)
    if runtime is None:
        return f"{name} does not run on NVIDIA GPUs here; {_listed(GPU_RUNTIMES)} do"
    unknown = sorted(
        option for option, _ in execution.options if option not in runtime.option_names
    )
    refusals = (
        (execution.backend in runtime.backends, "backend", execution.backend, runtime.backends),
        (execution.mode in runtime.modes, "mode", execution.mode, runtime.modes),
        (
            execution.precision in runtime.precisions,
            "precision",
            execution.precision,
            runtime.precisions,
        ),
        (not unknown, "option", unknown[0] if unknown else "", runtime.option_names),
    )
    for is_known, what, asked, known in refusals:
        if not is_known:
            return f"{name} has no {what} {str(asked)!r} on a GPU; it has {_listed(known)}"
    if execution.threads < 1 or execution.batch < 1:
        return "threads and batch are at least 1"
    return None


def _listed(words: Mapping[Runtime, GpuRuntime] | frozenset[str]) -> str:
    return ", ".join(sorted(str(word) for word in words))

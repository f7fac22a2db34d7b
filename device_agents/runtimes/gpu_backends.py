"""What runs on an NVIDIA GPU, by runtime: where runners, agent and worker all look."""

from collections.abc import Mapping

from fleetrank.device_agents.contract.capability import Capability, listed
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.contract.vocabulary import Mode, Precision, Runtime

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


GPU_RUNTIMES: Mapping[Runtime, Capability] = {
    Runtime.TORCH: Capability(
        backends=frozenset({CUDA}),
        modes=frozenset({Mode.EAGER, Mode.COMPILE, Mode.GRAPHS}),
        precisions=frozenset({Precision.FP32, Precision.FP16, Precision.BF16}),
        option_names=frozenset({FLUSH_L2, TF32, CUDNN_BENCHMARK}),
    ),
    Runtime.ONNX: Capability(
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
    capability = GPU_RUNTIMES.get(execution.runtime)
    if capability is None:
        return f"{name} does not run on NVIDIA GPUs here; {listed(GPU_RUNTIMES)} do"
    return capability.why_unsupported(execution, name, "on a GPU")

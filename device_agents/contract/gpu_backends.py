"""Backends and options for NVIDIA GPUs, by runtime; runners, agent and worker use this list."""

from collections.abc import Mapping

from fleetrank.device_agents.contract.capability import Capability, listed
from fleetrank.device_agents.contract.task import Execution
from fleetrank.foundation.vocabulary import Mode, Precision, Runtime

CUDA = "cuda"
TENSORRT = "tensorrt"
GPU_BACKENDS = frozenset({CUDA, TENSORRT})
FLUSH_L2 = "flush_l2"
"""Overwrite the L2 cache before each run, untimed; needs PyTorch, for every runtime."""
TF32 = "tf32"
"""Allow products of fp32 numbers to round their factors to 10 bits (TF32). PyTorch and ONNX Runtime
do this by default in convolutions; it is off here, so that fp32 is really fp32."""
CUDNN_BENCHMARK = "cudnn_benchmark"
"""PyTorch tests cuDNN's algorithms in the first run; off, which is PyTorch's default."""
TORCH_STREAM = "torch_stream"
"""ONNX Runtime uses a stream of PyTorch, whose events then time the run on the device."""
GPU_RUNTIMES: Mapping[Runtime, Capability] = {
    Runtime.TORCH: Capability(
        backends=(CUDA,),
        modes=frozenset({Mode.EAGER, Mode.COMPILE, Mode.GRAPHS}),
        precisions=frozenset({Precision.FP32, Precision.FP16, Precision.BF16}),
        option_names=frozenset({FLUSH_L2, TF32, CUDNN_BENCHMARK}),
    ),
    Runtime.ONNX: Capability(
        backends=(CUDA, TENSORRT),
        modes=frozenset({Mode.EAGER, Mode.GRAPHS}),
        # Its CUDA provider lacks most operators in bfloat16, such as convolutions.
        precisions=frozenset({Precision.FP32, Precision.FP16}),
        option_names=frozenset({FLUSH_L2, TF32, TORCH_STREAM}),
    ),
}


def why_unsupported_on_gpu(execution: Execution) -> str | None:
    """Says what is not supported on NVIDIA GPUs, or `None`; loads no library."""
    name = execution.runtime.value
    capability = GPU_RUNTIMES.get(execution.runtime)
    if capability is None:
        return f"{name} does not run on NVIDIA GPUs here; {listed(GPU_RUNTIMES)} do"
    return capability.why_unsupported(execution, name, "on a GPU")

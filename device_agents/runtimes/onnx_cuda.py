"""ONNX Runtime's CUDA and TensorRT providers; inputs and outputs are bound on the device."""

import importlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.capability import boolean_option
from fleetrank.device_agents.contract.failures import says_device_lost
from fleetrank.device_agents.contract.gpu_backends import TENSORRT, TF32, TORCH_STREAM
from fleetrank.device_agents.contract.runtime import Array
from fleetrank.device_agents.contract.task import Execution, Options, OptionValue
from fleetrank.device_agents.errors import UnsupportedError, missing_library
from fleetrank.device_agents.runtimes.onnx_session import fixed_spec_of, input_specs
from fleetrank.device_agents.runtimes.torch_cuda import TorchGpu
from fleetrank.foundation.errors import is_out_of_memory
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.vocabulary import Mode

if TYPE_CHECKING:
    from onnxruntime import InferenceSession as Session
    from onnxruntime import OrtValue as Value
    from onnxruntime import SessionOptions

RECORD_ASSIGNMENT = "session.record_ep_graph_assignment_info"
"""Older versions ignore an entry that they do not know."""
ProviderOptions = dict[str, str]
Providers = list[tuple[str, ProviderOptions]]


class OnnxGpu:
    """The calls that differ from the processor; tests pass a version that runs on the processor."""

    device = "cuda"

    def providers(self, execution: Execution, stream: int | None) -> Providers:
        """Providers in order of preference; the processor runs the remaining nodes."""
        shared: ProviderOptions = {"device_id": "0"}
        if stream is not None:
            shared["user_compute_stream"] = str(stream)
        use_graph = str(int(execution.mode is Mode.GRAPHS))
        cuda = shared | {
            "use_tf32": str(int(boolean_option(execution, TF32, default=False))),
            "enable_cuda_graph": "0" if execution.backend == TENSORRT else use_graph,
        }
        both: Providers = [("CUDAExecutionProvider", cuda)]
        if execution.backend == TENSORRT:
            trt = shared | {
                "trt_fp16_enable": str(int(execution.precision == "fp16")),
                "trt_cuda_graph_enable": use_graph,
            }
            both.insert(0, ("TensorrtExecutionProvider", trt))
        return both

    def preload(self, ort: ModuleType) -> None:
        """Loads CUDA's and cuDNN's libraries from their wheels, if installed as wheels."""
        if hasattr(ort, "preload_dlls"):
            ort.preload_dlls()

    def why_absent(self, ort: ModuleType, provider: str) -> str | None:
        """Why this ONNX Runtime lacks the provider, or `None`."""
        found = ort.get_available_providers()
        return None if provider in found else f"it has {', '.join(found)}"


class TorchStream:
    """A stream that PyTorch and ONNX Runtime share, with two events in it."""

    def __init__(self) -> None:
        try:
            torch = importlib.import_module("torch")
        except ImportError as error:
            raise missing_library("torch", "torch", error) from error
        TorchGpu(torch).open()  # gives a clear error; a stream would only say 'CUDA error'
        self._stream = torch.cuda.Stream()
        self.handle = int(self._stream.cuda_stream)
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def start(self) -> None:
        """Records the start event of a run."""
        self._start.record(self._stream)

    def finish(self) -> None:
        """Records the end event, and waits for it."""
        self._end.record(self._stream)
        self._stream.synchronize()

    def ns(self) -> int:
        """Nanoseconds between the two events."""
        ms: float = self._start.elapsed_time(self._end)
        return round(ms * 1e6)


class OnnxCudaModel:
    """One session with its binding; it fulfils `DeviceModel`."""

    def __init__(
        self,
        ort: ModuleType,
        session: "Session",
        execution: Execution,
        *,
        gpu: OnnxGpu,
        stream: TorchStream | None,
        settings: Mapping[str, OptionValue],
    ) -> None:
        self._ort, self._session, self._gpu, self._stream = ort, session, gpu, stream
        self.inputs = input_specs(session, execution)
        self.settings: Options = tuple(sorted(settings.items()))
        self._binding = session.io_binding()
        self._run_options = ort.RunOptions()
        if stream is not None:
            # The code that passed the stream waits for it, after the end event.
            self._run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        self._host: list[Array] = []
        self._values: list[Value] = []
        for node in session.get_outputs():
            # With stated inputs the first size of an output need not be the batch.
            spec = None if execution.inputs else fixed_spec_of(node, execution.batch)
            self._bind_output(node.name, spec)

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        """Copies the inputs into the memory of the first inputs, which a CUDA graph refers to."""
        self._host = list(arrays)
        if self._values:
            self.copy_inputs()
            return
        for spec, array in zip(self.inputs, arrays, strict=True):
            value = self._ort.OrtValue.ortvalue_from_numpy(array, self._gpu.device, 0)
            self._binding.bind_ortvalue_input(spec.name, value)
            self._values.append(value)

    def copy_inputs(self) -> None:
        """Copies the inputs from the host to the device again."""
        for value, array in zip(self._values, self._host, strict=True):
            value.update_inplace(array)
        self._binding.synchronize_inputs()

    def run(self) -> None:
        """Runs one inference; ONNX Runtime waits for its own stream, we wait for ours."""
        if self._stream is not None:
            self._stream.start()
        self._session.run_with_iobinding(self._binding, self._run_options)
        if self._stream is not None:
            self._stream.finish()

    def device_ns(self) -> int | None:
        """Duration of the last run by the device's clock."""
        return None if self._stream is None else self._stream.ns()

    def outputs(self) -> list[Array]:
        """Copies the outputs of the last run."""
        return [output.copy() for output in self._binding.copy_outputs_to_cpu()]

    def _bind_output(self, name: str, spec: ModelInput | None) -> None:
        if spec is None:  # the size is known only after the run
            self._binding.bind_output(name, self._gpu.device, 0)
            return
        value = self._ort.OrtValue.ortvalue_from_shape_and_type(
            list(spec.shape), spec.dtype, self._gpu.device, 0
        )
        self._binding.bind_ortvalue_output(name, value)


def load(
    ort: ModuleType, path: str, options: "SessionOptions", execution: Execution
) -> OnnxCudaModel:
    """Loads a file for the backend's provider, which must exist and be used.

    Raises:
        UnsupportedError: it does not exist, or ONNX Runtime fell back to another provider.
    """
    gpu = OnnxGpu()
    gpu.preload(ort)
    has_stream = boolean_option(execution, TORCH_STREAM, default=False)
    stream = TorchStream() if has_stream else None
    providers = gpu.providers(execution, None if stream is None else stream.handle)
    for name, _options in providers:
        if reason := gpu.why_absent(ort, name):
            raise UnsupportedError(
                f"this ONNX Runtime has no {name}: {reason}",
                "pip install onnxruntime-gpu instead of onnxruntime, for TensorRT also tensorrt",
            )
    options.add_session_config_entry(RECORD_ASSIGNMENT, "1")
    session = _open(ort, path, options, providers)
    _check_provider(session, providers[0][0])
    return OnnxCudaModel(
        ort,
        session,
        execution,
        gpu=gpu,
        stream=stream,
        settings=_settings(session, execution, has_stream=has_stream),
    )


def _open(ort: ModuleType, path: str, options: "SessionOptions", providers: Providers) -> "Session":
    """Opens a session without a retry with other providers, which would hide the reason.

    ONNX Runtime raises its own exception classes for a file, and standard ones for a provider.
    """
    try:
        return ort.InferenceSession(path, options, providers, enable_fallback=0)
    except (RuntimeError, ValueError) as error:
        if is_out_of_memory(error) or says_device_lost(str(error)):
            raise
        raise UnsupportedError(
            f"ONNX Runtime cannot use {providers[0][0]}: {error}",
            "if the driver is too old, update it or install a build for its CUDA; if libraries are "
            "missing, pip install onnxruntime-gpu[cuda,cudnn], for TensorRT also tensorrt",
        ) from error


def _check_provider(session: "Session", wanted: str) -> None:
    """Rejects a session that fell back to another provider; ONNX Runtime does not report this."""
    used = session.get_providers()
    if not used or used[0] != wanted:
        raise UnsupportedError(
            f"ONNX Runtime fell back from {wanted} to {', '.join(used) or 'nothing'}",
            "its messages on standard error name the missing CUDA, cuDNN or TensorRT library",
        )


def _settings(
    session: "Session", execution: Execution, *, has_stream: bool
) -> dict[str, OptionValue]:
    stated: dict[str, OptionValue] = {
        "graph_optimization": "all",
        "intra_op_threads": execution.threads,
        "mode": execution.mode.value,
        TF32: boolean_option(execution, TF32, default=False),
        TORCH_STREAM: has_stream,
    }
    on_cpu = _nodes_on_cpu(session)
    return stated if on_cpu is None else stated | {"nodes_on_cpu": on_cpu}


def _nodes_on_cpu(session: "Session") -> int | None:
    """Number of nodes that run on the processor; `None` with an older ONNX Runtime."""
    tell = getattr(session, "get_provider_graph_assignment_info", None)
    if tell is None:
        return None
    parts = [part for part in tell() if part.ep_name == "CPUExecutionProvider"]
    return sum(len(part.get_nodes()) for part in parts)

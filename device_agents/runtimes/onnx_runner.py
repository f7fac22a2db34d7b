"""ONNX Runtime on the CPU, on NVIDIA GPUs (CUDA and TensorRT), in plugins, and with states."""

import importlib
import importlib.metadata
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.agent import (
    GPU_BACKENDS,
    PLUGIN,
    TENSORRT,
    TF32,
    TORCH_STREAM,
    Capability,
    Plugin,
    boolean_option,
    plugin_of,
)
from fleetrank.device_agents.contract.measurement import says_device_lost
from fleetrank.device_agents.contract.runtime import Array, Library, LoadedModel, Placed, Products
from fleetrank.device_agents.contract.task import Execution, Options, OptionValue
from fleetrank.device_agents.errors import (
    BadArtifactError,
    MissingLibraryError,
    UnsupportedError,
    missing_library,
)
from fleetrank.device_agents.runtimes.runner import (
    FoundInput,
    PromptAndSteps,
    StatePair,
    check_state,
    has_states,
    specs_of,
    state_pairs,
    with_batch,
)
from fleetrank.device_agents.runtimes.torch_cuda import TorchGpu
from fleetrank.foundation.binary import Span, fields_of, spans_of
from fleetrank.foundation.errors import FleetError, is_out_of_memory, says_out_of_memory
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.onnx_file import (
    INITIALIZERS,
    NODES,
    TENSOR_NAME,
    NodeField,
    onnx_graph,
    text_of,
)
from fleetrank.foundation.vocabulary import Mode

if TYPE_CHECKING:
    from onnxruntime import InferenceSession as Session
    from onnxruntime import IOBinding as Binding
    from onnxruntime import NodeArg as Node
    from onnxruntime import OrtEpDevice as Device
    from onnxruntime import OrtValue as Value
    from onnxruntime import SessionOptions

# The parts of ONNX Runtime's session that are used here, and its inputs and outputs as specs.

DTYPES = {
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16",
    "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(int16)": "int16",
    "tensor(int8)": "int8", "tensor(uint64)": "uint64", "tensor(uint32)": "uint32",
    "tensor(uint16)": "uint16", "tensor(uint8)": "uint8", "tensor(bool)": "bool",
}  # fmt: skip
"""ONNX Runtime's names of types, and NumPy's."""


def input_specs(session: "Session", execution: Execution) -> tuple[ModelInput, ...]:
    """The inputs with all sizes.

    Raises:
        UnsupportedError: a type is not numeric, a size has no value, or the task states others.
    """
    return specs_of([_found(node) for node in session.get_inputs()], execution)


def _found(node: "Node") -> FoundInput:
    if node.type not in DTYPES:
        raise UnsupportedError(
            f"input {node.name!r} has the type {node.type}", "use a model whose inputs are numbers"
        )
    sizes = tuple(size if isinstance(size, int) and size > 0 else None for size in node.shape)
    return FoundInput(name=node.name, sizes=sizes, dtype=DTYPES[node.type])


def fixed_spec_of(node: "Node", batch: int) -> ModelInput | None:
    """An output of known size: only its first dimension may be dynamic; otherwise `None`."""
    rest = node.shape[1:]
    if node.type not in DTYPES or not all(isinstance(size, int) and size > 0 for size in rest):
        return None
    if not node.shape:
        return None
    found = _found(node)
    shape = with_batch(node.name, found.sizes, batch)
    return ModelInput(name=node.name, shape=shape, dtype=found.dtype)


# ONNX Runtime's CUDA and TensorRT providers; inputs and outputs are bound on the device.

_RECORD_ASSIGNMENT = "session.record_ep_graph_assignment_info"
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
    options.add_session_config_entry(_RECORD_ASSIGNMENT, "1")
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


_UNSUPPORTED_SIGNS = (
    "NOT_IMPLEMENTED", "Could not find an implementation", "is not a registered function/op",
    "No Op registered for",
    "No opset import for domain", "is under development",
)  # fmt: skip
"""Texts with which ONNX Runtime 1.22 to 1.31 reports a missing operator."""


_OF_INTEGERS = frozenset({
    "QLinearConv", "QGemm", "QLinearMatMul", "MatMulInteger", "MatMulIntegerToFloat", "ConvInteger",
    "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "QAttention", "MatMulNBits",
})  # fmt: skip
_OF_FLOATS = frozenset({
    "Conv", "ConvTranspose", "FusedConv", "NhwcFusedConv", "Gemm", "FusedGemm", "MatMul",
    "FusedMatMul", "Attention", "MultiHeadAttention", "LSTM", "GRU",
})  # fmt: skip
"""Operators of ONNX and of ONNX Runtime (docs/ContribOperators.md) that are products."""
_ATTRIBUTE_NAME, _ATTRIBUTE_INTEGER, _BODIES = 1, 3, (6, 11)
"""Fields of AttributeProto: onnx.proto."""
_BITS, _LEVEL, _OF_INT8 = "MatMulNBits", "accuracy_level", 4
"""At another level it turns its weights into floats (docs/ContribOperators.md)."""


def kernels_of(model: bytes) -> list[str]:
    """The operators of a model that have weights, those of an `If` or `Loop` behind it."""
    return list(_kernels(model, onnx_graph(model), frozenset()))


def _kernels(model: bytes, graph: Span, outer: frozenset[str]) -> Iterator[str]:
    """Those of a graph that also sees the weights of outer ones."""
    parts = list(spans_of(model, graph))
    stored = [one for number, one in parts if number == INITIALIZERS]
    weights = outer.union(*(_texts(model, one, TENSOR_NAME) for one in stored))
    for node in (one for number, one in parts if number == NODES):
        (operator,) = _texts(model, node, NodeField.OPERATOR)
        inputs = _texts(model, node, NodeField.INPUTS)
        attributes = [
            one for number, one in spans_of(model, node) if number == NodeField.ATTRIBUTES
        ]
        if operator == "DequantizeLinear" and inputs[0] in weights:
            weights = weights.union(_texts(model, node, NodeField.OUTPUTS))
        elif not weights.isdisjoint(inputs):
            is_float = operator == _BITS and _level(model, attributes) != _OF_INT8
            yield "MatMul" if is_float else operator
        for number, body in (part for one in attributes for part in spans_of(model, one)):
            if number in _BODIES:
                yield from _kernels(model, body, weights)


def _level(model: bytes, attributes: Sequence[Span]) -> object:
    for one in attributes:
        if _texts(model, one, _ATTRIBUTE_NAME) == [_LEVEL]:
            return dict(fields_of(model, one)).get(_ATTRIBUTE_INTEGER)
    return None


def _texts(model: bytes, span: Span, field: int) -> list[str]:
    return [text_of(model, at) for number, at in spans_of(model, span) if number == field]


class OnnxModel:
    """One session, its feed and its last outputs."""

    def __init__(self, session: "Session", execution: Execution, settings: Options) -> None:
        self._session = session
        self.inputs = input_specs(session, execution)
        self.settings = settings
        self._feed: dict[str, Array] = {}
        self._outputs: list[Array] = []

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        """Keeps the arrays: the CPU provider reads them in place."""
        self._feed = {spec.name: array for spec, array in zip(self.inputs, arrays, strict=True)}

    def run(self) -> None:
        """Runs one inference.

        The last outputs are freed first, as in a loop that does not keep them. If they were kept
        during the run, buffers in the arena would move: 1 to 3 % for SqueezeNet (onnxruntime 1.31).
        """
        self._outputs = []
        self._outputs = self._session.run(None, self._feed)

    def outputs(self) -> list[Array]:
        """Copies the outputs of the last run."""
        return [output.copy() for output in self._outputs]


# Plugins: providers in packages of their own (ONNX Runtime 1.23 and newer).


class OnnxPluginModel(OnnxModel):
    """A session whose nodes run in a plugin; it fulfils `PlacedModel`."""

    def __init__(
        self, session: "Session", execution: Execution, settings: Options, placed: Placed
    ) -> None:
        super().__init__(session, execution, settings)
        self.placed = placed
        self._backend = execution.backend

    def run(self) -> None:
        """Runs one inference.

        Raises:
            UnsupportedError: the plugin took nodes that it cannot run.
        """
        try:
            super().run()
        except Exception as error:
            taken = f"took {self.placed.backend_nodes} of {self.placed.graph_nodes} nodes"
            raise _plugin_error(error, f"{self._backend} {taken} and cannot run them") from error


def load_plugin(
    ort: ModuleType, path: str, options: "SessionOptions", execution: Execution, plugin: Plugin
) -> OnnxPluginModel:
    """Loads a file for a plugin, which must take at least one node.

    Raises:
        UnsupportedError: no such device, or no node of the file runs on it.
    """
    backend = execution.backend
    package = next((name for name in plugin.packages if find_spec(name) is not None), None)
    if package is None:
        names = " or ".join(name.replace("_", "-") for name in plugin.packages)
        raise MissingLibraryError(
            f"backend {backend} needs {names}, not installed",
            f"pip install the maker's package beside fleetrank, {names}",
        )
    if not hasattr(ort.InferenceSession, "get_provider_graph_assignment_info"):
        raise UnsupportedError(
            f"onnxruntime {ort.__version__} does not say which nodes run in a plugin",
            "pip install --upgrade onnxruntime",
        )
    options.add_session_config_entry(_RECORD_ASSIGNMENT, "1")
    try:
        device = _plugin_device(_plugin_devices(ort, package), execution.backend, plugin.unit)
        options.add_provider_for_devices([device], {})
        session = ort.InferenceSession(path, options, enable_fallback=0)
    except Exception as error:
        raise _plugin_error(error, f"{backend} cannot load the file") from error
    counts = [
        (part.ep_name, len(part.get_nodes()))
        for part in session.get_provider_graph_assignment_info()
    ]
    placed = Placed(
        backend_nodes=sum(count for name, count in counts if name == device.ep_name),
        graph_nodes=sum(count for _name, count in counts),
    )
    if not placed.backend_nodes:
        raise UnsupportedError(
            f"{backend} runs 0 of {placed.graph_nodes} nodes of this file",
            "the plugin's messages on standard error may say which operators it lacks; measure the "
            "file with another backend",
        )
    settings: Options = (
        ("graph_optimization", "all"),
        ("intra_op_threads", execution.threads),
        ("plugin", package),
        ("plugin_device", f"{device.ep_name} {_unit(device)} {device.device.vendor}"),
        ("plugin_version", device.ep_metadata.get("version", "")),
    )
    return OnnxPluginModel(session, execution, settings, placed)


@cache
def _plugin_devices(ort: ModuleType, package: str) -> "tuple[Device, ...]":
    """The devices that the plugin adds; ONNX Runtime registers a library once in a process."""
    module = importlib.import_module(package)
    path = getattr(module, "get_library_path", None) or getattr(module, "library_path", None)
    if path is None:
        raise UnsupportedError(
            f"{package} has no function get_library_path, so it is not a plugin for ONNX Runtime",
            "update the package, or name another one",
        )
    before = {device.ep_name for device in ort.get_ep_devices()}
    ort.register_execution_provider_library(package, str(path()))
    return tuple(device for device in ort.get_ep_devices() if device.ep_name not in before)


def _plugin_device(found: "Sequence[Device]", backend: str, unit: str | None) -> "Device":
    fitting = [device for device in found if unit in (None, _unit(device))]
    units = sorted({_unit(device) for device in found})
    if not fitting:
        raise UnsupportedError(
            f"{backend} finds no device: the plugin offers {', '.join(units) or 'none'}",
            "check the driver, or name a kind of device that the plugin offers",
        )
    if unit is None and len(units) > 1:
        raise UnsupportedError(
            f"{backend} offers several devices: {', '.join(units)}",
            f"name one, such as {backend}:{units[-1]}",
        )
    return fitting[0]


def _unit(device: "Device") -> str:
    name: str = device.device.type.name
    return name.lower()


def _plugin_error(error: Exception, what: str) -> Exception:
    """The error of a file; one of memory or of a lost device stays as it is."""
    text = str(error)
    if isinstance(error, FleetError) or is_out_of_memory(error) or says_device_lost(text):
        return error
    if says_out_of_memory(text):
        return MemoryError(text)
    return UnsupportedError(
        f"{what}: {text}", "update the plugin, or measure the file with another backend"
    )


SWITCHES = {
    "flush_denormals": (False, "session.set_denormal_as_zero"),
    "spinning": (True, "session.intra_op.allow_spinning"),
    "x64_quant_precision": (False, "session.x64quantprecision"),
}
"""Options of the CPU: default, and the entry of a session's configuration."""


class OnnxRunner:
    """Options: `spinning` (default true), `flush_denormals`, `x64_quant_precision` (default false).

    The last is ONNX Runtime's: without it, sums of int8 products saturate on x86 without VNNI.
    These are the options of the CPU; `GPU_RUNTIMES` has those of a GPU.

    Attributes:
        session: the last session that was opened on a processor; `None` before.
    """

    capability = Capability(backends=("cpu", PLUGIN), option_names=frozenset(SWITCHES))
    library = Library(distribution="onnxruntime", module="onnxruntime", extra="onnx")

    def __init__(self, profile_prefix: str | None = None) -> None:
        """`profile_prefix` starts the path of the profile that a session writes; `None`: none."""
        self._profile_prefix = profile_prefix
        self.session: Session | None = None

    def version(self) -> str:
        """The version of the runtime's library."""
        try:
            return importlib.metadata.version("onnxruntime")
        except importlib.metadata.PackageNotFoundError:
            return importlib.metadata.version("onnxruntime-gpu")

    def admit(self, path: str) -> str:
        """Accepts every file: an ONNX file contains no code."""
        return path

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """Loads an artifact."""
        # Since 1.31 its thread reports models to its maker and writes into the user's cache folder.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        try:
            ort = importlib.import_module("onnxruntime")
        except ImportError as error:
            raise missing_library("onnxruntime", "onnx", error) from error
        switches = {
            name: boolean_option(execution, name, default=default)
            for name, (default, _) in SWITCHES.items()
        }
        options = _session_options(ort, execution.threads, switches)
        if self._profile_prefix is not None:
            options.enable_profiling = True
            options.profile_file_prefix = self._profile_prefix
        plugin = plugin_of(execution.backend)
        if plugin is not None:
            return load_plugin(ort, path, options, execution, plugin)
        if execution.backend in GPU_BACKENDS:
            try:
                return load(ort, path, options, execution)
            except Exception as error:
                raise _as_agent_error(error) from error
        try:
            opened = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise _as_agent_error(error) from error
        self.session = session = opened
        used: dict[str, OptionValue] = {
            "graph_optimization": "all", "inter_op_threads": 1,
            "intra_op_threads": execution.threads, **switches,
        }  # fmt: skip
        settings: Options = tuple(sorted(used.items()))
        if has_states(execution):
            return OnnxStateModel(ort, session, execution, settings)
        return OnnxModel(session, execution, settings)

    def products(self, path: str, execution: Execution) -> Products | None:
        """Of the optimised graph: a graph before it has quantised numbers between float nodes."""
        if execution.backend != "cpu":
            return None
        ort = importlib.import_module("onnxruntime")
        options = _session_options(ort, 1, {"spinning": False})
        # The worker's parent removes the folder.
        optimised = Path(mkdtemp(prefix="fleetrank-optimised-"), "model.onnx")
        options.optimized_model_filepath = str(optimised)
        options.log_severity_level = 3  # it warns that the graph is for this machine only
        ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        kernels = kernels_of(optimised.read_bytes())
        found = sum(name in _OF_INTEGERS for name in kernels)
        return Products(of_integers=found, all=found + sum(name in _OF_FLOATS for name in kernels))


def _session_options(
    ort: ModuleType, threads: int, switches: Mapping[str, bool]
) -> "SessionOptions":
    options = ort.SessionOptions()
    # With the value 0, the pool takes all cores and sets its own affinity.
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    for name, is_on in switches.items():
        options.add_session_config_entry(SWITCHES[name][1], str(int(is_on)))
    return options


def _as_agent_error(error: Exception) -> FleetError | Exception:
    """ONNX Runtime's exceptions have no common class; their module identifies them."""
    if not type(error).__module__.startswith("onnxruntime"):
        return error
    text = str(error)
    if says_out_of_memory(text):
        return MemoryError(text)
    if says_device_lost(text):
        return error
    if any(sign in text for sign in _UNSUPPORTED_SIGNS):
        return UnsupportedError(
            f"ONNX Runtime cannot execute the file: {text}",
            "export it with an older opset, or use a newer ONNX Runtime",
        )
    return BadArtifactError(
        f"ONNX Runtime rejects the file: {text}", "export it again, or check where it comes from"
    )


# ONNX Runtime with states: a state's input and output are bound to the same memory.

_DEVICE = "cpu"


class OnnxStateModel(PromptAndSteps["Binding | None"]):
    """One session and its bindings; it fulfils `SequenceModel`.

    A step has a binding that differs from the prompt's only in the inputs that are no states.
    """

    copies_state = False

    def __init__(
        self, ort: ModuleType, session: "Session", execution: Execution, settings: Options
    ) -> None:
        self._ort, self._session, self.settings = ort, session, settings
        self.inputs = input_specs(session, execution)
        nodes = session.get_outputs()
        pairs = state_pairs(self.inputs, [node.name for node in nodes], has_names=True)
        _check_states(self.inputs, nodes, pairs)
        self._outputs = [node.name for node in nodes]
        self._state_of = {nodes[pair.output].name: self.inputs[pair.input].name for pair in pairs}
        self.values: dict[str, Value] = {}
        self._last: Binding | None = None
        super().__init__(None)

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        """Copies the arrays: a run writes into those of its states."""
        named = zip(self.inputs, arrays, strict=True)
        self.values = {spec.name: self._owned(array) for spec, array in named}
        self._prompt = self._bind(self.values)

    def set_steps(self, steps: Sequence[Sequence[Array]]) -> None:
        """Binds the inputs of each step beside the same states."""
        names = [spec.name for spec in self.inputs if spec.state is None]
        self._steps = [
            self._bind(
                self.values
                | {name: self._owned(array) for name, array in zip(names, step, strict=True)}
            )
            for step in steps
        ]

    def outputs(self) -> list[Array]:
        """Copies the outputs of the last run."""
        if self._last is None:
            return []
        return [output.copy() for output in self._last.copy_outputs_to_cpu()]

    def _run(self, binding: "Binding | None") -> None:
        self._last = binding
        if binding is not None:
            self._session.run_with_iobinding(binding, None)

    def _owned(self, array: Array) -> "Value":
        # On a processor the value is the memory of the array itself.
        value: Value = self._ort.OrtValue.ortvalue_from_numpy(array.copy(), _DEVICE, 0)
        return value

    def _bind(self, values: "dict[str, Value]") -> "Binding":
        binding = self._session.io_binding()
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in self._outputs:
            state = self._state_of.get(name)
            if state is None:
                binding.bind_output(name, _DEVICE, 0)
            else:
                binding.bind_ortvalue_output(name, values[state])
        return binding


def _check_states(
    inputs: Sequence[ModelInput], outputs: "Sequence[Node]", pairs: Sequence[StatePair]
) -> None:
    """Checks that each state fits its next value.

    Raises:
        UnsupportedError: sizes or types differ; a size that the file leaves open fits any.
    """
    for pair in pairs:
        spec, node = inputs[pair.input], outputs[pair.output]
        sizes = [
            wanted if not isinstance(size, int) else size
            for size, wanted in zip(node.shape, spec.shape, strict=False)
        ]
        is_same_rank = len(node.shape) == len(spec.shape)
        check_state(spec, sizes if is_same_rank else node.shape, DTYPES.get(node.type, node.type))

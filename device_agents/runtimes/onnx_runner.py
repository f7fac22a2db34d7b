"""ONNX Runtime: chooses the provider and loads a model; how each provider runs is beside it."""

import importlib
import importlib.metadata
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.capability import Capability, boolean_option
from fleetrank.device_agents.contract.failures import says_device_lost
from fleetrank.device_agents.contract.gpu_backends import GPU_BACKENDS
from fleetrank.device_agents.contract.plugin_backends import PLUGIN, plugin_of
from fleetrank.device_agents.contract.runtime import Library, LoadedModel, Products
from fleetrank.device_agents.contract.task import Execution, Options, OptionValue
from fleetrank.device_agents.errors import BadArtifactError, UnsupportedError, missing_library
from fleetrank.device_agents.runtimes.declared_inputs import has_states
from fleetrank.device_agents.runtimes.onnx_cuda import load
from fleetrank.device_agents.runtimes.onnx_model import OnnxModel
from fleetrank.device_agents.runtimes.onnx_plugins import load_plugin
from fleetrank.foundation.errors import FleetError, says_out_of_memory
from fleetrank.foundation.onnx_file import (
    INITIALIZERS,
    NODES,
    TENSOR_NAME,
    NodeField,
    onnx_graph,
    text_of,
)
from fleetrank.foundation.protobuf import Span, fields_of, spans_of

if TYPE_CHECKING:
    from onnxruntime import InferenceSession as Session
    from onnxruntime import SessionOptions

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
            from fleetrank.device_agents.runtimes.onnx_states import OnnxStateModel

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

"""LiteRT's interpreter, with XNNPACK or its built-in kernels."""

import importlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetrank.device_agents.contract.capability import Capability
from fleetrank.device_agents.contract.runtime import Array, Library, LoadedModel, Products, Scale
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.device_agents.errors import BadArtifactError, UnsupportedError, missing_library
from fleetrank.device_agents.runtimes.declared_inputs import FoundInput, has_states, specs_of
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.inputs import ModelInput

if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Interpreter

_IDENTIFIER = b"TFL3"
"""Bytes 4 to 8 of every TFLite file. Source: schema.fbs, file_identifier."""
_COMPILED = "ai_edge_litert.compiled_model"
_UNSUPPORTED_SIGNS = ("unresolved custom op", "unresolved-ops", "Didn't find op for builtin")
"""Texts with which LiteRT 2 reports a missing operator."""
_PRODUCTS = frozenset({
    "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "CONV_3D", "FULLY_CONNECTED", "BATCH_MATMUL",
})  # fmt: skip
_INTEGERS = frozenset({np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int16)})


class TfliteModel:
    """One interpreter with its tensors allocated: a `QuantizedModel`."""

    def __init__(
        self, interpreter: "Interpreter", inputs: Sequence[ModelInput], settings: Options
    ) -> None:
        self._interpreter = interpreter
        self.settings = settings
        details = interpreter.get_input_details()
        made = interpreter.get_output_details()
        self._input_indices = [detail["index"] for detail in details]
        self._output_indices = [detail["index"] for detail in made]
        self.inputs = tuple(inputs)
        self.input_scales = [_scale(detail) for detail in details]
        self.output_scales = [_scale(detail) for detail in made]

    @property
    def delegate_kernels(self) -> int:
        """How many nodes of the executed graph run on a delegate."""
        details = self._interpreter._get_ops_details()
        return sum(detail["op_name"] == "DELEGATE" for detail in details)

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        """Copies the arrays into the interpreter's arena."""
        for index, array in zip(self._input_indices, arrays, strict=True):
            self._interpreter.set_tensor(index, array)

    def run(self) -> None:
        """Runs one inference."""
        self._interpreter.invoke()

    def outputs(self) -> list[Array]:
        """Copies the outputs of the last run."""
        return [self._interpreter.get_tensor(index) for index in self._output_indices]


class TfliteRunner:
    """Backends: `xnnpack` (LiteRT's default) and `builtin` (its own kernels). It has no options."""

    capability = Capability(backends=("xnnpack", "builtin"))
    library = Library(
        distribution="ai-edge-litert", module="ai_edge_litert.interpreter", extra="tflite"
    )

    def __init__(self) -> None:
        self._environment: object = None

    def version(self) -> str:
        """The version of the runtime's library."""
        return importlib.metadata.version("ai-edge-litert")

    def admit(self, path: str) -> str:
        """Accepts every file: a TFLite file contains no code."""
        return path

    def load(self, path: str, execution: Execution) -> LoadedModel:
        """Loads an artifact."""
        _check_identifier(path)
        if execution.workload.context_tokens is not None:
            self._open_states()
        if has_states(execution):
            return self._load_with_states(path, execution)
        library = _import("ai_edge_litert.interpreter")
        try:
            interpreter = _open(library, path, execution)
            inputs = _set_sizes(interpreter, execution)
            interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise _as_agent_error(error) from error
        return TfliteModel(interpreter, inputs, _settings(execution))

    def products(self, path: str, execution: Execution) -> Products:
        """By the types of the second operand: both kernel libraries take integers as integers.

        With float activations and integer weights they turn the activations into integers. Weights
        that are only stored as integers come from a node that dequantises them, as floats.
        """
        interpreter = _open(_import("ai_edge_litert.interpreter"), path, execution)
        details = interpreter._get_ops_details()
        # Not the products of two computed tensors, as of attention.
        computed = {
            int(index)
            for one in details
            if one["op_name"] != "DEQUANTIZE"
            for index in one["outputs"]
        }
        nodes = [
            one
            for one in details
            if one["op_name"] in _PRODUCTS and int(one["inputs"][1]) not in computed
        ]
        tensors = {one["index"]: one["dtype"] for one in interpreter.get_tensor_details()}
        weights = [np.dtype(tensors[one["inputs"][1]]) for one in nodes]
        return Products(of_integers=sum(one in _INTEGERS for one in weights), all=len(nodes))

    def _open_states(self) -> None:
        """Once in a process; the primer of a decoder has its workload, and no inputs."""
        if self._environment is None:
            from fleetrank.device_agents.runtimes.tflite_states import open_environment

            self._environment = open_environment(_import(_COMPILED))

    def _load_with_states(self, path: str, execution: Execution) -> LoadedModel:
        from fleetrank.device_agents.runtimes.tflite_states import load

        library, settings = _import(_COMPILED), (("api", "compiled_model"), *_settings(execution))
        try:
            return load(library, self._environment, path, execution, settings)
        except (RuntimeError, ValueError) as error:
            raise _as_agent_error(error) from error


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise missing_library("ai_edge_litert", "tflite", error) from error


def _settings(execution: Execution) -> Options:
    return (
        # XNNPACK flushes denormals to zero, and this cannot be switched off.
        ("flush_denormals", execution.backend == "xnnpack"),
        ("threads", execution.threads),
        ("xnnpack", execution.backend == "xnnpack"),
    )


def _open(library: ModuleType, path: str, execution: Execution) -> "Interpreter":
    kinds = library.OpResolverType
    resolver = kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    return library.Interpreter(
        model_path=path,
        num_threads=execution.threads,
        experimental_op_resolver_type=kinds.AUTO if execution.backend == "xnnpack" else resolver,
    )


def _set_sizes(interpreter: "Interpreter", execution: Execution) -> tuple[ModelInput, ...]:
    """Resizes the inputs whose sizes the file leaves open; returns all inputs."""
    details = interpreter.get_input_details()
    specs = specs_of([_found(detail) for detail in details], execution)
    for detail, spec in zip(details, specs, strict=True):
        if spec.shape != tuple(detail["shape"]):
            interpreter.resize_tensor_input(detail["index"], spec.shape)
    return specs


def _found(detail: Mapping[str, Any]) -> FoundInput:
    # A file without a signature of sizes fixes all of them.
    sizes = detail["shape_signature"] if len(detail["shape_signature"]) else detail["shape"]
    return FoundInput(
        name=detail["name"],
        sizes=tuple(int(size) if size >= 0 else None for size in sizes),
        dtype=np.dtype(detail["dtype"]).name,
    )


def _scale(detail: Mapping[str, Any]) -> Scale | None:
    step, zero = detail["quantization"]
    return Scale(step=step, zero=zero) if step else None  # 0: not quantised as a whole


def _check_identifier(path: str) -> None:
    with Path(path).open("rb") as file:
        head = file.read(8)
    if head[4:8] != _IDENTIFIER:
        raise BadArtifactError(
            f"{path} is not a TFLite file", "give a .tflite file, or export the model again"
        )


def _as_agent_error(error: Exception) -> FleetError:
    text = str(error)
    if any(sign in text for sign in _UNSUPPORTED_SIGNS):
        return UnsupportedError(
            f"LiteRT cannot execute the file: {text}",
            "convert it with built-in operators only",
        )
    return BadArtifactError(
        f"LiteRT rejects the file: {text}", "export it again, or check where it comes from"
    )

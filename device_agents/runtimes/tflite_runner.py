"""LiteRT's interpreter, with XNNPACK or its built-in kernels."""

import importlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetrank.device_agents.contract.agent import Capability
from fleetrank.device_agents.contract.runtime import Array, Library, LoadedModel, Products, Scale
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.device_agents.errors import BadArtifactError, UnsupportedError, missing_library
from fleetrank.device_agents.runtimes.runner import (
    FoundInput,
    PromptAndSteps,
    check_state,
    has_states,
    specs_of,
    state_pairs,
)
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.inputs import ModelInput, WorkloadKind, phase_of

if TYPE_CHECKING:
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_litert.tensor_buffer import TensorBuffer

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
            self._environment = open_environment(_import(_COMPILED))

    def _load_with_states(self, path: str, execution: Execution) -> LoadedModel:
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


# LiteRT's `CompiledModel`, whose tensors live in buffers that the caller chooses.
#
# A state's input and output are one buffer. The `Interpreter`, which runs all files without
# states, has its own buffers and would copy a state out and in for each step. Both use the same
# kernels; the cost of one call differs by some microseconds.

_STEP = WorkloadKind.DECODE.value
"""Signature of the steps in a file with two graphs; a file of one workload has one signature."""
_DTYPES = frozenset({"float32", "float16", "bfloat16", "int32", "int8", "uint8", "bool"})
"""Types of LiteRT's buffers in Python. Source: ai_edge_litert 2.3, tensor_buffer.py."""


_Call = tuple[int, list["TensorBuffer"], list["TensorBuffer"]]
"""A signature's place, and the buffers of its inputs and outputs in the file's order."""


class _Graph:
    """One signature: its inputs and outputs, and which of them are states."""

    def __init__(self, model: "CompiledModel", key: str, execution: Execution) -> None:
        self.key, self.index = key, model.get_signature_index(key)
        names = model.get_signature_list()[key]
        details = model.get_input_tensor_details(key)
        self.names = _in_task_order(names["inputs"], execution)
        self.inputs = specs_of(
            [_states_found(name, details[name]) for name in self.names], execution
        )
        self._places = [self.names.index(name) for name in names["inputs"]]
        made = model.get_output_tensor_details(key)
        self.outputs = [_states_found(name, made[name]) for name in names["outputs"]]
        self.pairs = state_pairs(self.inputs, names["outputs"], has_names=False)
        for pair in self.pairs:
            found = self.outputs[pair.output]
            check_state(self.inputs[pair.input], found.sizes, found.dtype)

    def call(
        self, index: int, inputs: Sequence["TensorBuffer"], results: Sequence["TensorBuffer"]
    ) -> "_Call":
        """What runs the graph on these inputs: buffers of states are those of their inputs."""
        state_of = {pair.output: pair.input for pair in self.pairs}
        outputs = [
            inputs[state_of[place]] if place in state_of else result
            for place, result in enumerate(results)
        ]
        return index, [inputs[place] for place in self._places], outputs


class TfliteStateModel(PromptAndSteps[_Call]):
    """The graphs of a file and the buffers of their tensors; it fulfils `SequenceModel`."""

    copies_state = False

    def __init__(self, model: "CompiledModel", execution: Execution, settings: Options) -> None:
        self._model, self.settings = model, settings
        keys = list(model.get_signature_list())
        phase = phase_of(execution.workload)
        self._graph = graph = _Graph(model, phase if phase in keys else keys[0], execution)
        self.inputs = tuple(_usable(spec) for spec in graph.inputs)
        self.buffers = [model.create_input_buffer_by_name(graph.key, name) for name in graph.names]
        self._results = model.create_output_buffers(graph.index)
        super().__init__(graph.call(graph.index, self.buffers, self._results))
        self._last = self._prompt

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        """Copies the arrays into the buffers."""
        for buffer, array in zip(self.buffers, arrays, strict=True):
            buffer.write(array)

    def set_steps(self, steps: Sequence[Sequence[Array]]) -> None:
        """Gives each step buffers for its inputs, beside those of the states."""
        self._steps = []
        index = self._model.get_signature_index(_STEP)
        places = [place for place, spec in enumerate(self.inputs) if spec.state is None]
        for step in steps:
            inputs = list(self.buffers)
            for place, array in zip(places, step, strict=True):
                inputs[place] = self._model.create_input_buffer_by_name(
                    _STEP, self._graph.names[place]
                )
                inputs[place].write(array)
            self._steps.append(self._graph.call(index, inputs, self._results))

    def _run(self, call: _Call) -> None:
        self._last = call
        self._model.run_by_index(*call)

    def outputs(self) -> list[Array]:
        """Copies the outputs of the last run: results first, then the states as their inputs."""
        states = [pair.output for pair in self._graph.pairs]
        results = [place for place in range(len(self._graph.outputs)) if place not in states]
        return [self._read(place) for place in (*results, *states)]

    def _read(self, place: int) -> Array:
        found = self._graph.outputs[place]
        shape = tuple(size or 0 for size in found.sizes)
        count = int(np.prod(shape))
        flat: Array = self._last[2][place].read(count, np.dtype(found.dtype))
        return flat.reshape(shape)


def open_environment(library: ModuleType) -> object:
    """What all models of a process share: 8 MB, which the primer takes instead of the model."""
    return library.Environment.create()


def load(
    library: ModuleType, environment: object, path: str, execution: Execution, settings: Options
) -> TfliteStateModel:
    """Opens a file with the task's backend and threads.

    Args:
        library: `ai_edge_litert.compiled_model`.
        environment: of this process.
        path: of the file.
        execution: states the inputs.
        settings: for the row.
    """
    modes = library.CpuKernelMode
    mode = modes.DELEGATE if execution.backend == "xnnpack" else modes.BUILTIN
    options = library.Options(
        hardware_accelerators=library.HardwareAccelerator.CPU,
        # Without a number LiteRT takes all cores, also in a process pinned to one.
        cpu_options=library.CpuOptions(num_threads=execution.threads, kernel_mode=mode),
    )
    model = library.CompiledModel.from_file(path, environment=environment, options=options)
    return TfliteStateModel(model, execution, settings)


def _states_found(name: str, detail: Mapping[str, Any]) -> FoundInput:
    sizes = tuple(size if size >= 0 else None for size in detail["shape"])
    return FoundInput(name=name, sizes=sizes, dtype=str(detail["dtype"]))


def _in_task_order(names: Sequence[str], execution: Execution) -> list[str]:
    """The inputs of a signature as the task states them; in the file's order if it renames them."""
    stated = [one.name for one in execution.inputs]
    return stated if set(stated) == set(names) else list(names)


def _usable(spec: ModelInput) -> ModelInput:
    if spec.dtype in _DTYPES:
        return spec
    raise UnsupportedError(
        f"input {spec.name!r} is {spec.dtype}, which LiteRT's buffers do not have",
        "convert the model with int32 in place of int64",
    )

"""LiteRT's `CompiledModel`, whose tensors live in buffers that the caller chooses.

A state's input and output are one buffer. The `Interpreter`, which runs all files without states,
has its own buffers and would copy a state out and in for each step. Both use the same kernels; the
cost of one call differs by some microseconds.
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetrank.device_agents.contract.runtime import Array
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.runtimes.declared_inputs import FoundInput, specs_of
from fleetrank.device_agents.runtimes.runner import PromptAndSteps
from fleetrank.device_agents.runtimes.states import check_state, state_pairs
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.workload import WorkloadKind, phase_of

if TYPE_CHECKING:
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.tensor_buffer import TensorBuffer

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

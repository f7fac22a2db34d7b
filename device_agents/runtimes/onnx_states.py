"""ONNX Runtime with states: a state's input and output are bound to the same memory."""

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.runtime import Array
from fleetrank.device_agents.contract.task import Execution, Options
from fleetrank.device_agents.runtimes.onnx_session import DTYPES, input_specs
from fleetrank.device_agents.runtimes.runner import PromptAndSteps
from fleetrank.device_agents.runtimes.states import StatePair, check_state, state_pairs
from fleetrank.foundation.inputs import ModelInput

if TYPE_CHECKING:
    from onnxruntime import InferenceSession as Session
    from onnxruntime import IOBinding as Binding
    from onnxruntime import NodeArg as Node
    from onnxruntime import OrtValue as Value

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

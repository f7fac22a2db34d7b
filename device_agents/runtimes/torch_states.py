"""PyTorch with states: the tensors that a run returns are the arguments of the next one."""

from collections.abc import Callable, Sequence
from types import ModuleType

from fleetrank.device_agents.contract.runtime import Array
from fleetrank.device_agents.contract.task import Options
from fleetrank.device_agents.runtimes.runner import PromptAndSteps
from fleetrank.device_agents.runtimes.states import StatePair
from fleetrank.device_agents.runtimes.torch_tensors import (
    as_arrays,
    as_numpy_has_it,
    as_tensor,
    tensors_of,
)
from fleetrank.foundation.inputs import ModelInput


class TorchStateModel(PromptAndSteps[list[object]]):
    """One module and its states on the processor; it fulfils `SequenceModel`."""

    copies_state = False

    def __init__(
        self,
        torch: ModuleType,
        module: Callable[..., object],
        specs: Sequence[ModelInput],
        pairs: Sequence[StatePair],
        settings: Options,
    ) -> None:
        self._torch, self._module, self._specs = torch, module, tuple(specs)
        self.settings = settings
        self.inputs = tuple(as_numpy_has_it(spec) for spec in specs)
        self._inputs = [pair.input for pair in pairs]
        self._outputs = [pair.output for pair in pairs]
        self.states: list[object] = []
        self._output: object = None
        super().__init__([])

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        """Copies the inputs into the runtime's memory."""
        self._prompt = self._tensors(arrays, self._specs)
        self.states = [self._prompt[place] for place in self._inputs]
        self._free(self._prompt)

    def set_steps(self, steps: Sequence[Sequence[Array]]) -> None:
        """Copies the inputs of each step; its states are filled in when it runs."""
        specs = [spec for spec in self._specs if spec.state is None]
        self._steps = []
        for step in steps:
            fixed = iter(self._tensors(step, specs))
            arguments = [next(fixed) if spec.state is None else None for spec in self._specs]
            self._steps.append(arguments)

    def outputs(self) -> list[Array]:
        """Copies the outputs of the last run."""
        return as_arrays(self._torch, self._output)

    def _run(self, call: list[object]) -> None:
        """Frees the last output first, as a loop that does not keep it."""
        for place, state in zip(self._inputs, self.states, strict=True):
            call[place] = state
        self.states = []
        self._output = None
        with self._torch.inference_mode():
            output = self._module(*call)
        self._free(call)
        flat = output if isinstance(output, tuple | list) else tensors_of(output)
        self.states = [flat[place] for place in self._outputs]
        self._output = output

    def _free(self, arguments: list[object]) -> None:
        """Drops the states, so that steps do not keep old ones alive."""
        for place in self._inputs:
            arguments[place] = None

    def _tensors(self, arrays: Sequence[Array], specs: Sequence[ModelInput]) -> list[object]:
        # Of the kind that a run returns, so that a compiled module is compiled once.
        with self._torch.inference_mode():
            pairs = zip(arrays, specs, strict=True)
            return [as_tensor(self._torch, array, spec) for array, spec in pairs]

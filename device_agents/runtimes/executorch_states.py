"""ExecuTorch with states, which every run copies: its planned memory has no place for them.

A program whose states are mutable buffers would keep them; the exported programs take them as
inputs, as those of the other runtimes do.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from fleetrank.device_agents.contract.runtime import Array
from fleetrank.device_agents.contract.task import Options
from fleetrank.device_agents.runtimes.runner import PromptAndSteps
from fleetrank.device_agents.runtimes.states import StatePair
from fleetrank.foundation.inputs import ModelInput

if TYPE_CHECKING:
    from executorch.extension.pybindings.portable_lib import ExecuTorchMethod as Method
    from torch import Tensor

    _Call = tuple[Method, list[Tensor]]


class ExecutorchStateModel(PromptAndSteps["_Call"]):
    """The method of prompts and that of steps; it fulfils `SequenceModel`."""

    copies_state = True

    def __init__(
        self,
        torch: ModuleType,
        program: object,
        methods: "tuple[Method, Method | None]",
        specs: tuple[Sequence[ModelInput], Sequence[StatePair]],
        settings: Options,
    ) -> None:
        self._torch = torch
        self._program = program  # the methods point into it, so it must stay alive
        self._method, self._step_method = methods
        self.inputs, self._pairs = tuple(specs[0]), tuple(specs[1])
        self.settings = settings
        self._last = self._method
        super().__init__((self._method, []))

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        """Wraps copies of the arrays; those of the states also take their next values."""
        self._prompt = (self._method, [self._tensor(array) for array in arrays])

    def set_steps(self, steps: Sequence[Sequence[Array]]) -> None:
        """Puts the inputs of each step beside the same states."""
        places = [place for place, spec in enumerate(self.inputs) if spec.state is None]
        self._steps = []
        for step in steps:
            arguments = list(self._prompt[1])
            for place, array in zip(places, step, strict=True):
                arguments[place] = self._tensor(array)
            self._steps.append((self._step_method or self._method, arguments))

    def outputs(self) -> list[Array]:
        """Copies the outputs of the last run."""
        outputs = self._last.get_outputs(clone_outputs=True)
        return [output.numpy() for output in outputs if hasattr(output, "numpy")]

    def _run(self, call: "_Call") -> None:
        method, arguments = call
        self._last = method
        method.set_inputs(arguments)
        method.execute()
        outputs = method.get_outputs(clone_outputs=False)
        for pair in self._pairs:
            arguments[pair.input].copy_(outputs[pair.output])

    def _tensor(self, array: Array) -> "Tensor":
        return self._torch.from_numpy(array.copy())

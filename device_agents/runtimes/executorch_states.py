"""ExecuTorch with states, which every run copies: its planned memory has no place for them.

A program whose states are mutable buffers would keep them; the exported programs take them as
inputs, as those of the other runtimes do.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Protocol

from fleetrank.device_agents.contract.task import Options
from fleetrank.device_agents.runtimes.runner import Array, TensorSpec
from fleetrank.device_agents.runtimes.states import StatePair


class Method(Protocol):
    """One loaded method of a program."""

    def set_inputs(self, inputs: Sequence[object]) -> None:
        """Copies the inputs into the planned memory."""

    def execute(self) -> None:
        """Runs it."""

    def get_outputs(self, clone_outputs: bool) -> Sequence[object]:
        """The outputs, in the planned memory unless they are cloned."""
        ...


class _Tensor(Protocol):
    def copy_(self, source: object) -> object: ...
    def numpy(self) -> Array: ...


class ExecutorchStateModel:
    """The method of prompts and that of steps; it fulfils `SequenceModel`."""

    copies_state = True

    def __init__(
        self,
        torch: ModuleType,
        program: object,
        methods: tuple[Method, Method | None],
        specs: tuple[Sequence[TensorSpec], Sequence[StatePair]],
        settings: Options,
    ) -> None:
        self._torch = torch
        self._program = program  # the methods point into it, so it must stay alive
        self._method, self._step_method = methods
        self.inputs, self._pairs = tuple(specs[0]), tuple(specs[1])
        self.settings = settings
        self._prompt: list[_Tensor] = []
        self._steps: list[list[_Tensor]] = []
        self._last = self._method
        self._next = 0

    def set_inputs(self, arrays: Sequence[Array]) -> None:
        """Wraps copies of the arrays; those of the states also take their next values."""
        self._prompt = [self._tensor(array) for array in arrays]

    def set_steps(self, steps: Sequence[Sequence[Array]]) -> None:
        """Puts the inputs of each step beside the same states."""
        places = [place for place, spec in enumerate(self.inputs) if spec.state is None]
        self._steps = []
        for step in steps:
            arguments = list(self._prompt)
            for place, array in zip(places, step, strict=True):
                arguments[place] = self._tensor(array)
            self._steps.append(arguments)

    def run(self) -> None:
        """Runs one inference; of `generate`, it reads the prompt."""
        self._next = 0
        self._run(self._method, self._prompt)

    def step(self) -> None:
        """Makes the next step; after the last one, the first."""
        arguments = self._steps[self._next]
        self._next = (self._next + 1) % len(self._steps)
        self._run(self._step_method or self._method, arguments)

    def outputs(self) -> list[Array]:
        """Copies the outputs of the last run."""
        outputs = self._last.get_outputs(clone_outputs=True)
        return [output.numpy() for output in outputs if hasattr(output, "numpy")]

    def _run(self, method: Method, arguments: Sequence[_Tensor]) -> None:
        self._last = method
        method.set_inputs(arguments)
        method.execute()
        outputs = method.get_outputs(clone_outputs=False)
        for pair in self._pairs:
            arguments[pair.input].copy_(outputs[pair.output])

    def _tensor(self, array: Array) -> _Tensor:
        tensor: _Tensor = self._torch.from_numpy(array.copy())
        return tensor

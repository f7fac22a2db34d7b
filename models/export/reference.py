"""Inputs and PyTorch's outputs, which a worker's outputs are compared with.

The file of inputs holds `input_0`, `input_1`, ..., and the file of outputs `output_0`, .... A model
with states is verified by a sequence: the states of one inference feed the next. Its file of inputs
holds, for each input, the values of all inferences; for a state only a few numbers, which are
repeated until they fill the first one, and `every_K`: of the last state, each so many-th value is
an output. So neither file grows with the cache. Of `generate`, `input_K` are those of the prompt,
and `step_K` those of the steps after it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.workload import Workload, WorkloadKind
from fleetrank.models.errors import ExportError
from fleetrank.models.networks.examples import INPUT_SEED, Array, Examples

if TYPE_CHECKING:
    import torch

STEPS = 8
"""Steps of a decoder, if its context has so many."""
_PROMPTS = 2
"""Inferences over whole prompts or texts: the second one must not see the first one's cache."""
_STATE_NUMBERS = 4099
"""Repeated to fill a state; a prime number, so that no two slots of a cache are equal."""
_STATE_SAMPLES = 1 << 16
"""Values of each last state that are compared, at most: 16 MB for 64 states."""
_Files = tuple[Path, Path]
_Call = tuple[int, int]
"""Number of tokens of one inference, and the position of the first one."""


def write_reference(network: "torch.nn.Module", examples: Examples, out_dir: Path) -> _Files:
    """Runs the network over its examples; returns the paths of inputs and of outputs.

    Raises:
        ExportError: the network returns no tensor, or values that are not finite.
    """
    import torch

    with torch.inference_mode():
        slices = [_tensors(network(*call)) for call in examples.calls]
    outputs = [np.concatenate(list(map(np.atleast_1d, each))) for each in zip(*slices, strict=True)]
    inputs = {f"input_{number}": array for number, array in enumerate(examples.stored)}
    return _save(out_dir, inputs, outputs)


def write_sequence(
    network: "torch.nn.Module", inputs: Sequence[ModelInput], workload: Workload, out_dir: Path
) -> _Files:
    """Runs a language model inference after inference; the same files.

    A decoder starts from a seeded cache. `prefill@T`: two prompts of T tokens. `decode@C`: tokens
    at the last 8 positions of the context. `generate@P+N`: a prompt and up to 8 steps. `encode@T`
    and `segment@L`: two texts. Tokens are seeded: no step depends on the one before it but by its
    states.

    Raises:
        ExportError: the outputs hold values that are not finite.
    """
    sequence = _Sequence(inputs=tuple(inputs), rng=np.random.default_rng(INPUT_SEED))
    prompts, steps = _calls(workload)
    stored = {f"input_{k}": array for k, array in sequence.values(prompts).items()}
    if workload.kind is WorkloadKind.GENERATE:
        stored |= {f"step_{k}": array for k, array in sequence.values(steps).items()}
    states = sequence.first_states()
    stored |= {f"input_{k}": numbers for k, numbers in states.items()}
    # Odd, so that samples do not all lie in the same places of a head.
    every = {k: -(-int(np.prod(inputs[k].shape)) // _STATE_SAMPLES) | 1 for k in states}
    stored |= {f"every_{k}": np.array(stride) for k, stride in every.items()}
    rows, last = _run(network, inputs, stored, states)
    outputs = [np.concatenate(each) for each in zip(*rows, strict=True)]
    samples = [state.reshape(-1)[:: every[k]] for k, state in zip(states, last, strict=True)]
    return _save(out_dir, stored, [*outputs, *samples])


def _calls(workload: Workload) -> tuple[list[_Call], list[_Call]]:
    """The inferences at once, and those that follow a prompt of `generate`."""
    length = workload.length or 0
    if workload.kind is WorkloadKind.DECODE:
        n_steps = min(STEPS, length)
        return [(1, length - n_steps + number) for number in range(n_steps)], []
    if workload.kind is WorkloadKind.GENERATE:
        n_steps = min(STEPS, (workload.generated or 1) - 1)
        return [(length, 0)], [(1, length + number) for number in range(n_steps)]
    return [(length, 0)] * _PROMPTS, []


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sequence:
    inputs: tuple[ModelInput, ...]
    rng: np.random.Generator

    def values(self, calls: Sequence[_Call]) -> dict[int, Array]:
        """By number of the input, the values of each inference; states are not among them."""
        return {
            number: np.stack([self._one(each, call) for call in calls])
            if calls
            else np.zeros((0, *each.shape), each.dtype)
            for number, each in enumerate(self.inputs)
            if each.state is None
        }

    def first_states(self) -> dict[int, Array]:
        """By number of the input, the few numbers that fill the first state."""
        return {
            number: self._state_numbers(each)
            for number, each in enumerate(self.inputs)
            if each.state is not None
        }

    def _state_numbers(self, each: ModelInput) -> Array:
        """Token ids for a state of these, normal numbers for all others."""
        if np.dtype(each.dtype).kind == "f":
            return self.rng.standard_normal(_STATE_NUMBERS, dtype=np.float32)
        low, high = int(each.values.low or 0), int(each.values.high or 0)
        return self.rng.integers(low, high, _STATE_NUMBERS, endpoint=True).astype(each.dtype)

    def _one(self, each: ModelInput, call: _Call) -> Array:
        n_tokens, first = call
        shape = (*each.shape[:-1], n_tokens)
        if each.values.counts_to is not None:
            return np.broadcast_to(np.arange(first, first + n_tokens, dtype=each.dtype), shape)
        low, high = int(each.values.low or 0), int(each.values.high or 0)
        return self.rng.integers(low, high, shape, endpoint=True).astype(each.dtype)


def _run(
    network: "torch.nn.Module",
    inputs: Sequence[ModelInput],
    stored: Mapping[str, Array],
    first_states: Mapping[int, Array],
) -> tuple[list[list[Array]], list[Array]]:
    """The outputs of each inference that are not states, and the last states."""
    import torch

    states = [np.resize(numbers, inputs[k].shape) for k, numbers in first_states.items()]
    rows: list[list[Array]] = []
    names = [name for name in ("input", "step") if f"{name}_0" in stored]
    with torch.inference_mode():
        for name in names:
            for number in range(len(stored[f"{name}_0"])):
                given = iter(states)
                call = [
                    next(given) if k in first_states else stored[f"{name}_{k}"][number]
                    for k in range(len(inputs))
                ]
                outputs = _tensors(network(*(torch.from_numpy(array) for array in call)))
                n_results = len(outputs) - len(states)
                rows.append(outputs[:n_results])
                states = outputs[n_results:]
    return rows, states


def _tensors(output: object) -> list[Array]:
    import torch
    from torch.utils import _pytree

    leaves = _pytree.tree_leaves(output)
    return [leaf.numpy() for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _save(out_dir: Path, inputs: Mapping[str, Array], outputs: Sequence[Array]) -> _Files:
    if not outputs:
        raise ExportError("the network returns no tensor", "return a tensor or a tuple of tensors")
    if not all(np.isfinite(output).all() for output in outputs):
        raise ExportError(
            "the network's output is not finite", "check its weights and normalisation"
        )
    inputs_path, reference_path = out_dir / "inputs.npz", out_dir / "reference.npz"
    named = {f"output_{number}": output for number, output in enumerate(outputs)}
    # NumPy's stub takes every keyword for its flag `allow_pickle`.
    np.savez(inputs_path, **inputs)  # type: ignore[arg-type]
    np.savez(reference_path, **named)  # type: ignore[arg-type]
    return inputs_path, reference_path

"""Runs a file whose outputs are states of its next inference, for verification."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fleetrank.device_agents.contract.runtime import Array, LoadedModel
from fleetrank.device_agents.contract.task import Execution
from fleetrank.device_agents.errors import BadArtifactError
from fleetrank.device_agents.worker.target_scores import check_count, outputs_of
from fleetrank.foundation.workload import Workload, WorkloadKind

Stored = Mapping[str, Array]
"""Arrays of the file of inputs: `input_K` of each input, `step_K` and `every_K` as below."""


def is_chain(stored: Iterable[str]) -> bool:
    """Whether the file says which outputs feed the next inference."""
    return any(name.startswith("every_") for name in stored)


def run_chain(
    stored: Stored, execution: Execution, load: Callable[[Execution], LoadedModel]
) -> list[Array]:
    """Runs inference after inference, and gives each the states that the last one computed.

    Args:
        stored: `input_K` holds the values of input K, the inferences along the first axis; of a
            state only numbers, which are repeated until they fill the first one. `every_K` marks a
            state. With `step_K` the file has two graphs, and these are the values for the second.
        execution: of the file.
        load: opens the file for an execution.

    Returns:
        The outputs that are not states, joined along their first axis; then of each last state
        every so many-th value.

    Raises:
        BadArtifactError: the file has other inputs or fewer outputs, or it fails.
    """
    n_inputs = sum(name.startswith("input_") for name in stored)
    is_state = [f"every_{k}" in stored for k in range(n_inputs)]
    states: list[Array] = []
    rows: list[list[Array]] = []
    for name, phase in _phases(stored, execution, is_state):
        values = {k: stored[f"{name}_{k}"] for k in range(n_inputs) if not is_state[k]}
        numbers = [stored[f"input_{k}"] for k in range(n_inputs) if is_state[k]]
        states = _run_phase(load(phase), values, states or numbers, rows)
    strides = [int(stored[f"every_{k}"]) for k in range(n_inputs) if is_state[k]]
    outputs = [np.concatenate(column) for column in zip(*rows, strict=True)]
    pairs = zip(states, strides, strict=True)
    return [*outputs, *(state.reshape(-1)[::stride] for state, stride in pairs)]


def _run_phase(
    model: LoadedModel,
    values: Mapping[int, Array],
    states: Sequence[Array],
    rows: list[list[Array]],
) -> list[Array]:
    """Runs the inferences of one graph and returns the last states; the graph is then freed."""
    check_count(model, [*values.values(), *states])
    shapes = [spec.shape for k, spec in enumerate(model.inputs) if k not in values]
    last = [np.resize(state, shape) for state, shape in zip(states, shapes, strict=True)]
    for number in range(len(next(iter(values.values())))):
        rest = iter(last)
        given = [values[k][number] if k in values else next(rest) for k in range(len(model.inputs))]
        outputs = outputs_of(model, given)
        n_results = len(outputs) - len(states)
        if n_results < 1:
            raise BadArtifactError(
                f"the file has {len(outputs)} outputs, of which {len(states)} should be states",
                "export the model again",
            )
        rows.append(outputs[:n_results])
        last = outputs[n_results:]
    return last


def _phases(
    stored: Stored, execution: Execution, is_state: Sequence[bool]
) -> Iterator[tuple[str, Execution]]:
    """The graphs of the file: one, or that of the prompt and that of a step."""
    workload = execution.workload
    if "step_0" not in stored:
        yield "input", execution
        return
    prompt = Workload(kind=WorkloadKind.PREFILL, length=workload.length)
    yield "input", replace(execution, workload=prompt)
    inputs = tuple(
        one if is_state[k] else replace(one, shape=stored[f"step_{k}"].shape[1:])
        for k, one in enumerate(execution.inputs)
    )
    step = Workload(kind=WorkloadKind.DECODE, length=workload.context_tokens)
    yield "step", replace(execution, workload=step, inputs=inputs)

"""Runs an artifact over stored inputs inside the worker, for verification."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from fleetrank.device_agents.comparison import TOLERANCES, compare_outputs, read_outputs
from fleetrank.device_agents.contract.agent import GPU_BACKENDS
from fleetrank.device_agents.contract.measurement import Failure, failure_from_error
from fleetrank.device_agents.contract.runtime import Array, LoadedModel, QuantizedModel, Scale
from fleetrank.device_agents.contract.task import Execution, InferTask
from fleetrank.device_agents.errors import BadArtifactError, WrongOutputError
from fleetrank.device_agents.runtimes.runner import create_runner
from fleetrank.device_agents.worker.run import Stage, check_artifact, check_unchanged, run_once
from fleetrank.foundation.comparison import Comparison
from fleetrank.foundation.inputs import ModelInput, Workload, WorkloadKind

if TYPE_CHECKING:
    from fleetrank.device_agents.confinement.walls import Walls

# How probable a file makes given targets: the next token of a text, or the class of an image.
#
# The logits of a text are much larger than the file: they stay in the worker.

TARGETS = "targets"
"""Array of the file of inputs: (n_cases, n) whole numbers; -1 is not scored."""
FOLLOWS = "follows"
"""Array of the file of inputs: (n_cases,), whether a case goes on with the states of the one before
it; without this array every case starts with states of zeros."""
VERSION = "runtime_version"
"""Array of the file of outputs: the version of the runtime that computed them."""
_ROWS = 64
"""Rows of logits that are held in double precision at once: 77 MB for 150,000 tokens."""


def score_cases(model: LoadedModel, stored: Mapping[str, Array]) -> list[Array]:
    """Runs case by case and scores the first output against the targets.

    Args:
        model: its first output has shape (..., n_classes), with n rows before the last axis.
        stored: `input_K`, of shape (n_cases, *shape of input K), of each input but states; and
            `targets`. With `follows`, for each state K `first_K`, its value for a case that does
            not follow another one; and `state_K`, if the first case follows one of another file.

    Returns:
        ln p of each target, (n_cases, n), 0 where there is none, not finite where the model's
        scores define none; the number of classes that come before it, (n_cases, n), -1 where there
        is none; and n_classes, (1,). With `follows`, also the states that the last case left.

    Raises:
        BadArtifactError: the file has other inputs, another number of rows, or lacks a target; or
            an input takes integers of which the file does not state the meaning.
    """
    targets = stored[TARGETS].astype(np.int64)
    follows = stored.get(FOLLOWS)
    places = [place for place, spec in enumerate(model.inputs) if spec.state is not None]
    states = _named(stored, "state", places)
    scored = []
    for case, row in enumerate(targets):
        is_first = follows is not None and not follows[case]
        outputs = _run(model, stored, case, _named(stored, "first", places) if is_first else states)
        scored.append(_score(_logits(model, outputs[0]), row))
        if follows is not None:
            states = dict(zip(places, outputs[len(outputs) - len(places) :], strict=True))
    probable = np.stack([one[0] for one in scored])
    before = np.stack([one[1] for one in scored])
    return [probable, before, np.array([scored[0][2]]), *states.values()]


def _named(stored: Mapping[str, Array], name: str, places: Sequence[int]) -> dict[int, Array]:
    """The stored arrays of this name for inputs at these places, if there are any."""
    return {place: stored[key] for place in places if (key := f"{name}_{place}") in stored}


def _run(
    model: LoadedModel, stored: Mapping[str, Array], case: int, states: Mapping[int, Array]
) -> list[Array]:
    """The outputs of a case; a state without a value is filled with zeros."""
    arrays = []
    for number, spec in enumerate(model.inputs):
        given = stored.get(f"input_{number}")
        # Refuses an input that is not stored and is not a state: no input has the shape (0,).
        zeros = np.zeros((0,) if spec.state is None else spec.shape, spec.dtype)
        array = states.get(number, zeros) if given is None else given[case]
        scale = model.input_scales[number] if isinstance(model, QuantizedModel) else None
        arrays.append(_in_dtype(array, spec, scale))
    return _outputs(model, arrays, "evaluate with the sizes that the file was exported for")


def _outputs(
    model: LoadedModel, arrays: Sequence[Array], remedy: str = "export the model again"
) -> list[Array]:
    """Runs one inference over an array for each input, which must have its shape."""
    _check_count(model, arrays)
    pairs = list(zip(model.inputs, arrays, strict=True))
    for spec, array in pairs:
        if array.shape != spec.shape:
            raise BadArtifactError(
                f"input {spec.name!r} has the shape {spec.shape}, the stored one {array.shape}",
                remedy,
            )
    model.set_inputs([np.array(array, dtype=spec.dtype) for spec, array in pairs])
    run_once(model)
    return model.outputs()


def _in_dtype(values: Array, spec: ModelInput, scale: Scale | None) -> Array:
    """The values as the input takes them; integers mean what the file says."""
    dtype = np.dtype(spec.dtype)
    if values.dtype.kind != "f" or dtype.kind not in "iu":
        return np.array(values, dtype=dtype)
    if scale is None:
        raise BadArtifactError(
            f"input {spec.name!r} takes {spec.dtype}, and the file does not say what they mean",
            "convert the model with inputs in float32, or quantised with a scale",
        )
    limits = np.iinfo(dtype)
    steps = np.rint(values.astype(np.float64) / scale.step) + scale.zero
    clipped: Array = np.clip(steps, limits.min, limits.max).astype(dtype)
    return clipped


def _logits(model: LoadedModel, output: Array) -> Array:
    """The scores of the classes, (n, n_classes)."""
    scale = model.output_scales[0] if isinstance(model, QuantizedModel) else None
    if scale is not None:
        output = scale.step * (output.astype(np.float64) - scale.zero)
    return output.reshape(-1, output.shape[-1])


def _score(
    logits: Array, targets: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64], int]:
    n_rows, n_classes = logits.shape
    if n_rows != len(targets):
        raise BadArtifactError(
            f"the file has {n_rows} rows of classes for {len(targets)} targets",
            "the first output must hold the scores of the classes in its last axis",
        )
    if targets.max(initial=0) >= n_classes:
        raise BadArtifactError(
            f"class {targets.max()} does not exist: the model has {n_classes:,} classes",
            "use data whose classes fit the model, or name the model's classes",
        )
    probable = np.zeros(n_rows)
    before = np.full(n_rows, -1)
    known = np.flatnonzero(targets >= 0)
    for start in range(0, len(known), _ROWS):
        rows = known[start : start + _ROWS]
        block = logits[rows].astype(np.float64)
        wanted = targets[rows]
        own = block[np.arange(len(rows)), wanted]
        top = block.max(axis=1)
        with np.errstate(invalid="ignore"):  # NaN and infinite scores: no probability
            probable[rows] = own - top - np.log(np.exp(block - top[:, None]).sum(axis=1))
        # Of equal scores the smaller class comes first, as argmax has it.
        ties = (block == own[:, None]) & (np.arange(n_classes) < wanted[:, None])
        before[rows] = (block > own[:, None]).sum(axis=1) + ties.sum(axis=1)
    return probable, before, n_classes


def infer(task: InferTask, enter: Stage, walls: "Walls | None") -> Failure | None:
    """Writes the outputs of every case; any failure is returned."""
    enter("verify")
    try:
        state = check_artifact(task.artifact_path, task.artifact_sha256)
        if task.execution.backend in GPU_BACKENDS:
            from fleetrank.device_agents.cuda.gpu_watch import open_library_or_none, use_gpu

            use_gpu(open_library_or_none(), task.gpu_uuid, task.execution)
        runner = create_runner(task.execution.runtime)
        path = task.artifact_path if task.is_trusted else runner.admit(task.artifact_path)
        if walls is not None:
            walls.arm(runner.library.module)
        stored = read_stored(task.inputs_path)
        if TARGETS in stored:
            outputs = score_cases(runner.load(path, task.execution), stored)
        else:
            outputs = run_stored(stored, task.execution, lambda way: runner.load(path, way))
        check_unchanged(task.artifact_path, state)
        named = {f"output_{index}": output for index, output in enumerate(outputs)}
        if TARGETS in stored:
            named[VERSION] = np.array(runner.version())
        with Path(task.outputs_path).open("wb") as to:
            np.savez(to, allow_pickle=False, **named)
        if walls is not None:
            walls.check()
    except Exception as error:  # the caller stores it as the reason
        return failure_from_error(error if walls is None else walls.cause(error), "verify")
    return None


def compare_with_network(model: LoadedModel, check_path: str, execution: Execution) -> Comparison:
    """Runs a loaded file over stored inputs and compares it with its network in fp32.

    Args:
        model: of one graph.
        check_path: `.npz` of inputs and of the network's outputs.
        execution: of the file.

    Raises:
        WrongOutputError: it computes something else here.
    """
    outputs = run_stored(read_stored(check_path), execution, lambda _: model)
    return compare_with(outputs, check_path, execution)


def compare_with(outputs: Sequence[Array], check_path: str, execution: Execution) -> Comparison:
    """Compares the outputs of a file with those of its network; errors as above."""
    tolerance = TOLERANCES.get(execution.precision)
    found = compare_outputs(read_outputs(Path(check_path)), outputs, tolerance)
    if not found.is_equal:
        raise WrongOutputError(
            f"the file computes something else here than its network in fp32: {found.reason}",
            "the same file was right where it was exported: try another version of the runtime, "
            "another recipe, or fp32",
        )
    return found


def run_stored(
    stored: Mapping[str, Array], execution: Execution, load: Callable[[Execution], LoadedModel]
) -> list[Array]:
    """The outputs of all stored cases."""
    if is_chain(stored):
        return run_chain(stored, execution, load)
    model, cases = load(execution), [stored[f"input_{index}"] for index in range(len(stored))]
    _check_count(model, cases)
    is_whole = cases[0].ndim > len(model.inputs[0].shape)
    return (_run_whole if is_whole else _run_cases)(model, cases)


def read_stored(path: str) -> dict[str, Array]:
    """Raises `BadArtifactError` if the file is damaged, or an array has nothing to run."""
    remedy = "export the model again, or give data that is not empty"
    try:
        with np.load(path, allow_pickle=False) as file:
            stored: dict[str, Array] = {
                name: file[name] for name in file.files if not name.startswith("output_")
            }
    except (EOFError, BadZipFile) as error:
        raise BadArtifactError("the file of inputs is empty or cut off", remedy) from error
    states = {name.replace("every_", "input_") for name in stored if is_chain((name,))}
    cases = [
        array
        for name, array in stored.items()
        if name == TARGETS or (name.startswith(("input_", "step_")) and name not in states)
    ]
    if not cases or not all(array.ndim and len(array) for array in cases):
        raise BadArtifactError("the file of inputs holds no case", remedy)
    return stored


def _run_cases(model: LoadedModel, inputs: Sequence[Array]) -> list[Array]:
    """Runs batch by batch and stacks the outputs: arrays of shape (n_cases, ...)."""
    rows: list[list[Array]] = []
    batch = model.inputs[0].shape[0] if model.inputs[0].shape else 1
    for start in range(0, len(inputs[0]), batch):
        parts = [array[start : start + batch] for array in inputs]
        # The last cases are repeated to fill their batch.
        arrays = [np.resize(part, (batch, *part.shape[1:])) for part in parts]
        rows.append([output[: len(parts[0])] for output in _outputs(model, arrays)])
    return [np.concatenate(column) for column in zip(*rows, strict=True)]


def _run_whole(model: LoadedModel, inputs: Sequence[Array]) -> list[Array]:
    """Runs case by case, each a whole input; joins the outputs along their first axis."""
    rows = [
        [np.atleast_1d(one) for one in _outputs(model, [array[case] for array in inputs])]
        for case in range(len(inputs[0]))
    ]
    return [np.concatenate(column) for column in zip(*rows, strict=True)]


def _check_count(model: LoadedModel, inputs: Sequence[Array]) -> None:
    if len(inputs) != len(model.inputs):
        raise BadArtifactError(
            f"the file takes {len(model.inputs)} inputs, {len(inputs)} are stored",
            "export the model again",
        )


# Runs a file whose outputs are states of its next inference, for verification.

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
    _check_count(model, [*values.values(), *states])
    shapes = [spec.shape for k, spec in enumerate(model.inputs) if k not in values]
    last = [np.resize(state, shape) for state, shape in zip(states, shapes, strict=True)]
    for number in range(len(next(iter(values.values())))):
        rest = iter(last)
        given = [values[k][number] if k in values else next(rest) for k in range(len(model.inputs))]
        outputs = _outputs(model, given)
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

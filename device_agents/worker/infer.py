"""Runs an artifact over stored inputs inside the worker, for verification."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fleetrank.device_agents.contract.measurement import Failure, failure_from_error
from fleetrank.device_agents.contract.task import InferTask
from fleetrank.device_agents.errors import BadArtifactError
from fleetrank.device_agents.runtimes.gpu_backends import GPU_BACKENDS
from fleetrank.device_agents.runtimes.runner import (
    Array,
    LoadedModel,
    QuantizedModel,
    Scale,
    create_runner,
)
from fleetrank.device_agents.worker.measure import is_chain, run_chain
from fleetrank.device_agents.worker.run import Stage, check_artifact, check_unchanged, run_once
from fleetrank.foundation.inputs import ModelInput

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
        is_state = given is None and spec.state is not None
        array = (
            states.get(number, np.zeros(spec.shape, spec.dtype)) if given is None else given[case]
        )
        if not (given is not None or is_state) or array.shape != spec.shape:
            raise BadArtifactError(
                f"input {spec.name!r} has the shape {spec.shape}, the data {array.shape}",
                "evaluate with the sizes that the file was exported for",
            )
        scale = model.input_scales[number] if isinstance(model, QuantizedModel) else None
        arrays.append(_in_dtype(array, spec, scale))
    model.set_inputs(arrays)
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
            walls.arm()
        with np.load(task.inputs_path, allow_pickle=False) as file:
            stored: dict[str, Array] = {name: file[name] for name in file.files}
        if TARGETS in stored:
            outputs = score_cases(runner.load(path, task.execution), stored)
        elif is_chain(stored):
            outputs = run_chain(stored, task.execution, lambda way: runner.load(path, way))
        else:
            cases = [stored[f"input_{index}"] for index in range(len(stored))]
            model = runner.load(path, task.execution)
            outputs = (_run_whole if task.has_whole_cases else _run_cases)(model, cases)
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


def _run_cases(model: LoadedModel, inputs: Sequence[Array]) -> list[Array]:
    """Runs case by case and stacks the outputs: arrays of shape (n_cases, ...)."""
    _check_count(model, inputs)
    rows: list[list[Array]] = []
    for case in range(len(inputs[0])):
        pairs = zip(model.inputs, inputs, strict=True)
        model.set_inputs([_as_batch(spec, array[case : case + 1]) for spec, array in pairs])
        run_once(model)
        # A file for a larger batch computes the same case in every place: keep the first.
        rows.append([output[:1] for output in model.outputs()])
    return [np.concatenate(column) for column in zip(*rows, strict=True)]


def _run_whole(model: LoadedModel, inputs: Sequence[Array]) -> list[Array]:
    """Runs case by case, each a whole input; joins the outputs along their first axis."""
    _check_count(model, inputs)
    rows: list[list[Array]] = []
    for case in range(len(inputs[0])):
        pairs = zip(model.inputs, inputs, strict=True)
        chosen = [(spec, array[case]) for spec, array in pairs]
        for spec, one in chosen:
            if one.shape != spec.shape:
                raise _misfit(spec, one)
        model.set_inputs([np.array(one, dtype=spec.dtype) for spec, one in chosen])
        run_once(model)
        rows.append([np.atleast_1d(output) for output in model.outputs()])
    return [np.concatenate(column) for column in zip(*rows, strict=True)]


def _check_count(model: LoadedModel, inputs: Sequence[Array]) -> None:
    if len(inputs) != len(model.inputs):
        raise BadArtifactError(
            f"the file takes {len(model.inputs)} inputs, {len(inputs)} are stored",
            "export the model again",
        )


def _misfit(spec: ModelInput, case: Array) -> BadArtifactError:
    return BadArtifactError(
        f"input {spec.name!r} has the shape {spec.shape}, the stored case {case.shape}",
        "export the model again",
    )


def _as_batch(spec: ModelInput, case: Array) -> Array:
    batch = spec.shape[0] if spec.shape else 1
    filled = np.repeat(case, batch, axis=0).astype(spec.dtype, copy=False)
    if filled.shape != spec.shape:
        raise _misfit(spec, case)
    return np.ascontiguousarray(filled)

"""Runs an artifact over stored inputs inside the worker, for verification."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np

from fleetrank.device_agents.comparison import TOLERANCES, compare_outputs, read_outputs
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.gpu_backends import GPU_BACKENDS
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.runtime import Array, LoadedModel
from fleetrank.device_agents.contract.task import Execution, InferTask
from fleetrank.device_agents.errors import BadArtifactError, WrongOutputError
from fleetrank.device_agents.runtimes.runner import create_runner
from fleetrank.device_agents.worker.artifact_checks import check_artifact, check_unchanged
from fleetrank.device_agents.worker.chained_runs import is_chain, run_chain
from fleetrank.device_agents.worker.run import Stage
from fleetrank.device_agents.worker.target_scores import (
    TARGETS,
    VERSION,
    check_count,
    outputs_of,
    score_cases,
)
from fleetrank.foundation.comparison import OutputComparison

if TYPE_CHECKING:
    from fleetrank.device_agents.confinement.walls import Walls


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


def compare_with_network(
    model: LoadedModel, check_path: str, execution: Execution
) -> OutputComparison:
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


def compare_with(
    outputs: Sequence[Array], check_path: str, execution: Execution
) -> OutputComparison:
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
    check_count(model, cases)
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
    cases = {
        name: array
        for name, array in stored.items()
        if name == TARGETS or (name.startswith(("input_", "step_")) and name not in states)
    }
    # A prompt that gives one token has no step.
    is_full = (one.ndim and (len(one) or name.startswith("step_")) for name, one in cases.items())
    if not cases or not all(is_full):
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
        rows.append([output[: len(parts[0])] for output in outputs_of(model, arrays)])
    return [np.concatenate(column) for column in zip(*rows, strict=True)]


def _run_whole(model: LoadedModel, inputs: Sequence[Array]) -> list[Array]:
    """Runs case by case, each a whole input; joins the outputs along their first axis."""
    rows = [
        [np.atleast_1d(one) for one in outputs_of(model, [array[case] for array in inputs])]
        for case in range(len(inputs[0]))
    ]
    return [np.concatenate(column) for column in zip(*rows, strict=True)]

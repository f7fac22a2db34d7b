"""Runs an artifact over stored inputs inside the worker, for verification."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import InferTask
from fleetrank.device_agents.errors import BadArtifactError
from fleetrank.device_agents.runtimes.gpu_backends import GPU_BACKENDS
from fleetrank.device_agents.runtimes.runner import Array, LoadedModel, TensorSpec, create_runner
from fleetrank.device_agents.worker.artifact_checks import check_artifact, check_unchanged, run_once
from fleetrank.device_agents.worker.chained_runs import is_chain, run_chain
from fleetrank.device_agents.worker.run import Stage
from fleetrank.device_agents.worker.target_scores import TARGETS, VERSION, score_cases

if TYPE_CHECKING:
    from fleetrank.device_agents.confinement.walls import Walls


def infer(task: InferTask, enter: Stage, walls: "Walls | None") -> Failure | None:
    """Writes the outputs of every case; any failure is returned."""
    enter("verify")
    try:
        state = check_artifact(task.artifact_path, task.artifact_sha256)
        if task.execution.backend in GPU_BACKENDS:
            _use_gpu(task)
        runner = create_runner(task.execution.runtime)
        path = task.artifact_path if task.is_trusted else runner.admit(task.artifact_path)
        if walls is not None:
            walls.arm()
        stored = _read_inputs(Path(task.inputs_path))
        if TARGETS in stored:
            outputs = score_cases(runner.load(path, task.execution), stored)
        elif is_chain(stored):
            outputs = run_chain(stored, task.execution, lambda way: runner.load(path, way))
        else:
            cases = [stored[f"input_{index}"] for index in range(len(stored))]
            model = runner.load(path, task.execution)
            outputs = (_run_whole if task.has_whole_cases else _run_cases)(model, cases)
        check_unchanged(task.artifact_path, state)
        facts = {VERSION: np.array(runner.version())} if TARGETS in stored else {}
        _write_outputs(Path(task.outputs_path), outputs, facts)
        if walls is not None:
            walls.check()
    except Exception as error:  # the caller stores it as the reason
        return failure_from_error(error if walls is None else walls.cause(error), "verify")
    return None


def _use_gpu(task: InferTask) -> None:
    from fleetrank.device_agents.cuda.gpu_watch import open_library_or_none, use_gpu

    use_gpu(open_library_or_none(), task.gpu_uuid, task.execution)


def _read_inputs(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _write_outputs(path: Path, outputs: Sequence[Array], facts: Mapping[str, Array]) -> None:
    named = {f"output_{index}": output for index, output in enumerate(outputs)}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **named, **facts)


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
        model.set_inputs([_as_input(spec, array[case]) for spec, array in pairs])
        run_once(model)
        rows.append([np.atleast_1d(output) for output in model.outputs()])
    return [np.concatenate(column) for column in zip(*rows, strict=True)]


def _check_count(model: LoadedModel, inputs: Sequence[Array]) -> None:
    if len(inputs) != len(model.inputs):
        raise BadArtifactError(
            f"the file takes {len(model.inputs)} inputs, {len(inputs)} are stored",
            "export the model again",
        )


def _as_input(spec: TensorSpec, case: Array) -> Array:
    if case.shape != spec.shape:
        raise _misfit(spec, case)
    return np.array(case, dtype=spec.dtype)


def _misfit(spec: TensorSpec, case: Array) -> BadArtifactError:
    return BadArtifactError(
        f"input {spec.name!r} has the shape {spec.shape}, the stored case {case.shape}",
        "export the model again",
    )


def _as_batch(spec: TensorSpec, case: Array) -> Array:
    batch = spec.shape[0] if spec.shape else 1
    filled = np.repeat(case, batch, axis=0).astype(spec.dtype, copy=False)
    if filled.shape != spec.shape:
        raise _misfit(spec, case)
    return np.ascontiguousarray(filled)

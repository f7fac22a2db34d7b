"""How probable a file makes given targets: the next token of a text, or the class of an image.

The logits of a text are much larger than the file: they stay in the worker.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fleetrank.device_agents.contract.runtime import Array, LoadedModel, QuantizedModel, Scale
from fleetrank.device_agents.errors import BadArtifactError
from fleetrank.device_agents.worker.artifact_checks import run_once
from fleetrank.foundation.inputs import ModelInput

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
    return outputs_of(model, arrays, "evaluate with the sizes that the file was exported for")


def outputs_of(
    model: LoadedModel, arrays: Sequence[Array], remedy: str = "export the model again"
) -> list[Array]:
    """Runs one inference over an array for each input, which must have its shape."""
    check_count(model, arrays)
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


def check_count(model: LoadedModel, inputs: Sequence[Array]) -> None:
    """Returns if there are as many arrays as the file has inputs."""
    if len(inputs) != len(model.inputs):
        raise BadArtifactError(
            f"the file takes {len(model.inputs)} inputs, {len(inputs)} are stored",
            "export the model again",
        )

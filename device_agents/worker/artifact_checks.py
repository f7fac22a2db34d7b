"""Checks that the file is the right one, has the right batch, and runs at all."""

import os
from collections.abc import Sequence
from pathlib import Path

from fleetrank.device_agents.contract.failures import LOST_REMEDY, says_device_lost
from fleetrank.device_agents.contract.runtime import LoadedModel, Runner
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.device_agents.errors import (
    BadArtifactError,
    LostArtifactError,
    TransientError,
    UnsupportedError,
)
from fleetrank.foundation.errors import FleetError, is_out_of_memory
from fleetrank.foundation.inputs import ModelInput
from fleetrank.foundation.small_file import open_regular, sha256_of

State = tuple[int, int, int, int, int]
"""Device, inode, size, and the times of the last change of content and of inode."""


def check_artifact(path: str, sha256: str) -> State:
    """Rejects a file that the task was not made for; returns the file's state before the check.

    Raises:
        LostArtifactError: the file is missing or has changed; the model is not at fault.
    """
    try:
        with open_regular(Path(path)) as file:
            state = _state(os.fstat(file.fileno()))
            found = sha256_of(file)
    except OSError as error:
        raise LostArtifactError(
            f"cannot read {path}: {error.strerror}", "resume the sweep, which exports it again"
        ) from error
    if found != sha256:
        raise LostArtifactError(
            f"{path} has changed: its sha256 is {found}, not {sha256}",
            "delete the file and resume the sweep, which exports it again",
        )
    return state


def admitted(runner: Runner, task: MeasureTask) -> tuple[str, State]:
    """Checks the files of a task; returns the path that may be loaded, and the file's state.

    Raises:
        LostArtifactError: a file is missing or has changed.
        BadArtifactError: a file from outside contains more than a network.
    """
    state = check_artifact(task.artifact_path, task.artifact_sha256)
    if task.weights_path is not None:
        check_artifact(task.weights_path, Path(task.weights_path).stem)
    if task.check_path is not None:
        check_artifact(task.check_path, Path(task.check_path).stem)
    path = task.artifact_path if task.is_trusted else runner.admit(task.artifact_path)
    return path, state


def check_unchanged(path: str, state: State) -> None:
    """Rejects a file that was changed or replaced while it was checked and loaded.

    Checks and runtimes open the file by its path, one after the other.

    Raises:
        LostArtifactError: it was changed or replaced.
    """
    try:
        found = _state(Path(path).stat())
    except OSError:
        found = None
    if found != state:
        raise LostArtifactError(
            f"{path} was changed while it was loaded", "resume the sweep, which measures it again"
        )


def _state(found: os.stat_result) -> State:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def check_batch(inputs: Sequence[ModelInput], batch: int) -> None:
    """Rejects a file of fixed size whose batch differs from the one in the row.

    Raises:
        UnsupportedError: no input has this batch as its first size. For a batch of one, inputs may
            have no batch axis, so only images are checked.
    """
    first_sizes = [spec.shape[0] for spec in inputs if len(spec.shape) >= (1 if batch > 1 else 4)]
    if (batch > 1 or first_sizes) and batch not in first_sizes:
        raise UnsupportedError(
            f"the file is made for other batches than {batch}: its inputs begin with {first_sizes}",
            "export it with this batch or with a dynamic one",
        )


def run_once(model: LoadedModel) -> None:
    """Runs one inference; its failure is the artifact's failure.

    Raises:
        BadArtifactError: the runtime failed on it.
        MemoryError: an allocation failed.
    """
    try:
        model.run()
    except (FleetError, MemoryError):
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise MemoryError(str(error)) from error
        if says_device_lost(str(error)):
            raise TransientError(str(error), LOST_REMEDY) from error
        raise BadArtifactError(
            f"the runtime failed while running the file: {type(error).__name__}: {error}",
            "run the file by hand in its runtime; export it again if it fails there too",
        ) from error

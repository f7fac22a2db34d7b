"""The files that a task needs on a board: artifact, weights, primer, canary, inputs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.contract.task import InferTask, MeasureTask
from fleetrank.device_agents.errors import LostArtifactError
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.small_file import file_sha256

_LONGEST_SUFFIX = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardFile:
    """A file to be on the board, under `SHA256.SUFFIX`."""

    path: Path
    sha256: str

    @property
    def name(self) -> str:
        """Its name on the board; some runtimes read the suffix."""
        suffix = self.path.suffix.lower()[:_LONGEST_SUFFIX]
        return f"{self.sha256}{suffix if suffix[1:].isalnum() and suffix.isascii() else ''}"


def files_of(task: MeasureTask | InferTask) -> Mapping[str, BoardFile]:
    """The files of a task by their path here.

    Raises:
        LostArtifactError: one cannot be read.
    """
    artifact = Path(task.artifact_path)
    if not artifact.is_file():
        raise LostArtifactError(
            f"cannot read {artifact}", "resume the sweep, which exports it again"
        )
    known = dict(_stated(task))
    more = [one.values.path for one in task.execution.inputs]
    more.append(task.inputs_path if isinstance(task, InferTask) else task.primer_path)
    for path in (path for path in more if path is not None):
        known.setdefault(path, _sha256(Path(path)))
    return {path: BoardFile(path=Path(path), sha256=sha256) for path, sha256 in known.items()}


def _stated(task: MeasureTask | InferTask) -> Iterator[tuple[str, str]]:
    """The files whose SHA-256 the task states, or their name."""
    yield task.artifact_path, task.artifact_sha256
    if task.weights_path is not None:
        # By its name the artifact finds it in its own folder.
        yield task.weights_path, Path(task.weights_path).stem
    if isinstance(task, MeasureTask):
        if task.check_path is not None:
            yield task.check_path, Path(task.check_path).stem
        if task.canary is not None:
            yield task.canary.artifact_path, task.canary.artifact_sha256


def _sha256(path: Path) -> str:
    """Of the file as it is now; the worker compares it with what the card states."""
    with failing_as(
        LostArtifactError, f"cannot read {path}", "restore the file, then resume the sweep", OSError
    ):
        return file_sha256(path)

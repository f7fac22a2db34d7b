"""The files that a task needs on a board: artifact, weights, primer, canary, inputs."""

import re
from collections.abc import Mapping
from pathlib import Path

from fleetrank.device_agents.errors import LostArtifactError
from fleetrank.device_agents.hosts.files import Task, with_places
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.small_file import file_sha256

_SHA256 = re.compile(r"[0-9a-f]{64}")


def name_there(path: Path, sha256: str) -> str:
    """The name of a file on a board; some runtimes read its suffix, of eight letters at most."""
    suffix = path.suffix.lower()[:9]
    return f"{sha256}{suffix if suffix[1:].isalnum() and suffix.isascii() else ''}"


def files_of(task: Task) -> Mapping[str, str]:
    """The names on a board of a task's files, by their path here.

    Raises:
        LostArtifactError: one cannot be read.
    """
    artifact = Path(task.artifact_path)
    if not artifact.is_file():
        raise LostArtifactError(
            f"cannot read {artifact}", "resume the sweep, which exports it again"
        )
    found: dict[str, str] = {}

    def note(path: str) -> str:
        place = Path(path)
        # Exported files are named by their content; an artifact finds its weights by this name.
        sha256 = place.stem if _SHA256.fullmatch(place.stem) else None
        if path == task.artifact_path:
            sha256 = task.artifact_sha256
        found[path] = name_there(place, sha256 or _sha256(place))
        return path

    with_places(task, note)
    return found


def _sha256(path: Path) -> str:
    """Of the file as it is now; the worker compares it with what the card states."""
    with failing_as(
        LostArtifactError, f"cannot read {path}", "restore the file, then resume the sweep", OSError
    ):
        return file_sha256(path)

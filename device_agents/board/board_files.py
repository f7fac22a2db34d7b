"""The files that a task needs on a board: artifact, weights, primer, inputs; and which it lacks."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from fleetrank.device_agents.board.board_link import BoardFile, BoardLink
from fleetrank.device_agents.contract.agent import StopRequested
from fleetrank.device_agents.contract.task import InferTask, MeasureTask
from fleetrank.device_agents.errors import BadOutputError, LostArtifactError, UnusableDeviceError
from fleetrank.foundation.codec import Json
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.small_file import file_sha256

Task = TypeVar("Task", MeasureTask, InferTask)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a board has of some files.

    Attributes:
        places: path there of each file, by its path here.
        names: of all files there, which may not be removed to make room.
        lacking: the files to send.
        state: the board's readings.
        boot: identifies its last start.
    """

    places: Mapping[str, str]
    names: tuple[str, ...]
    lacking: tuple[BoardFile, ...]
    state: Mapping[str, str]
    boot: Json


def prepare(
    link: BoardLink, board_hash: str | None, files: Mapping[str, BoardFile], stop: StopRequested
) -> Prepared:
    """Asks a board which files it lacks, and checks that it is the registered one.

    Args:
        link: to the board.
        board_hash: at its registration; `None` if unknown.
        files: by their path here.
        stop: ends it.

    Raises:
        UnusableDeviceError: another board answers.
        FleetError: it does not answer, or its answer is not valid.
    """
    names = list(dict.fromkeys(file.name for file in files.values()))
    reply = link.ask("prepare", {"names": names}, stop_requested=stop)
    require_identity(link.host, board_hash, reply.get("identity"))
    paths, missing = texts(reply.get("paths")), reply.get("missing")
    if not paths.keys() >= set(names):
        raise no_result("it does not say where the files lie")
    known = missing if isinstance(missing, list) else names
    lacking = {file.name: file for file in files.values() if file.name in known}
    return Prepared(
        places={path: paths[file.name] for path, file in files.items()},
        names=tuple(names),
        lacking=tuple(lacking.values()),
        state=texts(reply.get("state")),
        boot=reply.get("boot"),
    )


def require_identity(host: str, registered: str | None, found: Json) -> None:
    """Returns if the board is the registered one, or if either is unknown.

    Raises:
        UnusableDeviceError: another board answers.
    """
    if None not in (registered, found) and found != registered:
        raise UnusableDeviceError(
            f"another board answers at {host} than the one that was registered",
            "connect the right one, or register this one: `fleetrank devices add` with `ssh=HOST`",
        )


def texts(plain: Json) -> dict[str, str]:
    """An object of an answer whose values are texts.

    Raises:
        BadOutputError: it is not an object.
    """
    if not isinstance(plain, dict):
        raise no_result(f"{plain!r} in place of texts")
    return {name: str(text) for name, text in plain.items()}


def no_result(why: str) -> BadOutputError:
    """The error of an answer that is not what was asked for."""
    return BadOutputError(f"the board's answer is not a result: {why}", "try again")


def files_of(task: MeasureTask | InferTask) -> dict[str, BoardFile]:
    """The files of a task by their path here.

    Raises:
        LostArtifactError: one cannot be read.
    """
    artifact = Path(task.artifact_path)
    if not artifact.is_file():
        raise LostArtifactError(
            f"cannot read {artifact}", "resume the sweep, which exports it again"
        )
    found = {task.artifact_path: task.artifact_sha256}
    if task.weights_path is not None:
        # Its name is its SHA-256, by which the artifact finds it in its own folder.
        found[task.weights_path] = Path(task.weights_path).stem
    if isinstance(task, MeasureTask) and task.check_path is not None:
        found[task.check_path] = Path(task.check_path).stem
    more = [one.values.path for one in task.execution.inputs]
    more.append(task.inputs_path if isinstance(task, InferTask) else task.primer_path)
    for path in (path for path in more if path is not None):
        found.setdefault(path, _sha256(Path(path)))
    return {path: BoardFile(path=Path(path), sha256=sha256) for path, sha256 in found.items()}


def _sha256(path: Path) -> str:
    """Of the file as it is now; the worker compares it with what the card states."""
    with failing_as(
        LostArtifactError, f"cannot read {path}", "restore the file, then resume the sweep", OSError
    ):
        return file_sha256(path)


def with_paths(task: Task, places: Mapping[str, str]) -> Task:
    """The task with the paths of its files on the board, by those here; without its canary.

    The canary is a task for itself, and the board chooses where outputs are written.
    """
    inputs = tuple(
        one
        if one.values.path is None
        else replace(one, values=replace(one.values, path=places[one.values.path]))
        for one in task.execution.inputs
    )
    changes: dict[str, Any] = {
        name: places[path]
        for name in ("artifact_path", "weights_path", "primer_path", "check_path", "inputs_path")
        if (path := getattr(task, name, None)) is not None
    }
    if isinstance(task, MeasureTask):
        changes["canary"] = None
    return replace(task, execution=replace(task.execution, inputs=inputs), **changes)

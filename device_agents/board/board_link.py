"""Talks to the code on a board: installs it, sends artifacts, and asks for a repeat.

Every call is one command over `SshConnection`. `there.commands` answers.
"""

import ast
import hashlib
import io
import json
import shlex
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import fleetrank.device_agents
import fleetrank.foundation
from fleetrank.device_agents.board import first_contact
from fleetrank.device_agents.board.ssh import Dialogue, SshConnection
from fleetrank.device_agents.board.there.commands import REPLY_MARK
from fleetrank.device_agents.board.there.keeper import ACKNOWLEDGED, FINISH
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import InferTask, MeasureTask
from fleetrank.device_agents.errors import (
    AgentError,
    BadOutputError,
    LostArtifactError,
    NotFitError,
    PermanentError,
    StoppedError,
    StorageFullError,
    TransientError,
    UnusableDeviceError,
)
from fleetrank.foundation.codec import CodecError, Json, from_plain, parse_json
from fleetrank.foundation.errors import failing_as, shortened, visible_line
from fleetrank.foundation.files import file_sha256
from fleetrank.foundation.supervised_child import MAX_RESULT_BYTES, ChildEnd, End
from fleetrank.foundation.vocabulary import ErrorKind

FOLDER = ".cache/fleetrank-board"
"""Below the home folder, where ssh starts commands."""
SHORT_S = 60.0
"""For a command that does little: a slow board starts Python in two seconds."""
_PUSH_BYTES_PER_S = 100_000
"""Slower than any link that would be used for models of 100 MB."""
_BUSY_S = 1.0
_KEPT = frozenset({"measure", "fetch"})
"""The board keeps the reply of these commands until it has arrived here."""
_CHUNK_BYTES = 1 << 18
_START = "import sys; exec(sys.stdin.buffer.read(int(sys.argv[1])))"
"""Runs the program that comes first on standard input: its text meets no shell."""

Reply = Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardFile:
    """A file to be on the board, under `SHA256.SUFFIX`."""

    path: Path
    sha256: str

    @property
    def name(self) -> str:
        """Its name on the board; some runtimes read the suffix."""
        suffix = self.path.suffix.lower()
        return f"{self.sha256}{suffix if suffix[1:].isalnum() and suffix.isascii() else ''}"


class BoardBusyError(NotFitError):
    """Another host measures on the board."""


class BoardLink:
    """The code on one board. Safe to use from any thread.

    Args:
        connection: to the board.
        python: name or path of its Python.
        purpose: what another host that waits for the board is shown.
    """

    def __init__(self, connection: SshConnection, python: str, purpose: str) -> None:
        self._connection = connection
        self._python = python
        self._purpose = purpose

    @property
    def host(self) -> str:
        """The board's name for ssh."""
        return self._connection.target.host

    def ask(
        self,
        command: str,
        request: Mapping[str, object],
        *,
        payload: Sequence[Path] = (),
        timeout_s: float = SHORT_S,
        stop_requested: StopRequested = never_stop,
        finish_requested: StopRequested = never_stop,
    ) -> Reply:
        """Runs a command of `there.commands`; installs the code first if the board lacks it.

        Args:
            command: its name.
            request: its arguments.
            payload: files whose bytes follow.
            timeout_s: the board must have answered by then.
            stop_requested: ends the command.
            finish_requested: a round ends after its current blocks.

        Raises:
            TransientError: no connection, it ended, or the board is in use.
            PermanentError: the board cannot run the code, or its disk is full.
            StoppedError: the user stopped it.
        """
        line = json.dumps({"purpose": self._purpose, "wait_s": 0.0, **request}) + "\n"
        dialogue = Dialogue(
            is_complete=_has_reply,
            last_words=ACKNOWLEDGED if command in _KEPT else b"",
            meanwhile=_once(finish_requested, FINISH),
        )

        def run() -> ChildEnd:
            return self._connection.run(
                self._command(command),
                sent=chain((line.encode(),), _chunks(payload)),
                timeout_s=timeout_s,
                stop_requested=stop_requested,
                dialogue=dialogue,
            )

        end = run()
        if _lacks_code(end):
            self.install()
            end = run()
        return _checked(self._reply(end))

    def install(self) -> None:
        """Sends the measuring code; the board verifies its sha256.

        Raises:
            UnusableDeviceError: its Python is missing or too old, or the folder cannot be written.
            TransientError: no connection, or the code arrived damaged.
        """
        bundle = code_bundle()
        program = Path(first_contact.__file__).read_bytes()
        size, sha256 = str(len(bundle.content)), bundle.sha256
        end = self._connection.run(
            [self._python, "-c", _START, str(len(program)), FOLDER, size, sha256],
            sent=(program, bundle.content),
            timeout_s=SHORT_S + len(bundle.content) / _PUSH_BYTES_PER_S,
        )
        reply = self._reply(end)
        if "installed" not in reply:
            raise _not_installed(self.host, reply)

    def push(
        self,
        file: BoardFile,
        in_use: Sequence[str],
        wait_s: float,
        stop_requested: StopRequested = never_stop,
    ) -> None:
        """Sends a file; the board verifies its sha256.

        Args:
            file: to send.
            in_use: names of files that may not be removed there to make room.
            wait_s: how long to wait while another host measures on the board.
            stop_requested: ends it.

        Raises:
            BoardBusyError: another host still measures.
            StorageFullError: the board has no room.
            TransientError: the connection ended; nothing of the file stays.
        """
        size = file.path.stat().st_size
        self.ask(
            "put",
            {"name": file.name, "size": size, "in_use": [*in_use], "wait_s": wait_s},
            payload=(file.path,),
            timeout_s=SHORT_S + wait_s + size / _PUSH_BYTES_PER_S,
            stop_requested=stop_requested,
        )

    def clean(self) -> None:
        """Deletes our folder on the board."""
        end = self._connection.run(["rm", "-rf", "--", FOLDER], timeout_s=SHORT_S)
        if end.exit_code != 0:
            raise PermanentError(
                f"{self.host}: {FOLDER} was not deleted: {shortened(visible_line(end.stderr))}",
                f"ssh {shlex.quote(self.host)} rm -r {FOLDER}",
            )

    def _command(self, command: str) -> Sequence[str]:
        return [self._python, f"{FOLDER}/code/{code_bundle().sha256}/__main__.py", command]

    def _reply(self, end: ChildEnd) -> Reply:
        """The reply in the output of a command.

        Raises:
            StoppedError: the command was stopped.
            UnusableDeviceError: such a Python does not exist.
            BadOutputError: the output has no reply.
        """
        if end.end is End.STOP:
            raise StoppedError("the measurement was stopped on request", "resume the sweep")
        if end.end is End.TOO_MUCH_OUTPUT:
            raise BadOutputError(
                f"{self.host} wrote more than {MAX_RESULT_BYTES >> 20} MiB and no answer: "
                f"{shortened(visible_line(end.stderr.strip()), 200)}",
                f"run `ssh {shlex.quote(self.host)} true`: it must print nothing",
            )
        lines = [line for line in end.stdout.split("\n") if line.startswith(REPLY_MARK)]
        if lines:
            return _parsed(lines[-1].removeprefix(REPLY_MARK))
        said = shortened(visible_line((end.stderr or end.stdout).strip()), 300)
        if end.exit_code in _NO_PROGRAM or _PYTHON_2 in end.stderr:
            raise UnusableDeviceError(
                f"{self.host} cannot use {self._python!r}: {said}",
                "install Python 3.10 or newer there, or name it with `python=PATH`",
            )
        raise BadOutputError(
            f"{self.host} gave no answer (exit code {end.exit_code}): {said}",
            f"run `ssh {shlex.quote(self.host)} {shlex.quote(self._python)} -V`",
        )


_NO_PROGRAM = (126, 127)
"""Source: POSIX, "Exit Status for Commands": not executable, not found."""
_PYTHON_2 = "SyntaxError"
"""Python 2 and 3.5 cannot even read `first_contact`."""
_NO_FILE = 2
"""Exit code of Python if it cannot open the program's file."""


def _lacks_code(end: ChildEnd) -> bool:
    has_none = end.exit_code == _NO_FILE and "can't open file" in end.stderr
    return end.end is End.ITSELF and has_none and not _has_reply(bytearray(end.stdout.encode()))


def _has_reply(received: bytearray) -> bool:
    at = received.rfind(REPLY_MARK.encode())
    return at >= 0 and received.find(b"\n", at) >= 0


def _once(is_wanted: Callable[[], bool], words: bytes) -> Callable[[], bytes]:
    """Gives words when they are wanted for the first time, afterwards none."""
    left = iter([words])
    return lambda: next(left, b"") if is_wanted() else b""


def _chunks(paths: Sequence[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk


def _parsed(text: str) -> Reply:
    try:
        plain = parse_json(text)
    except CodecError as error:
        raise BadOutputError(f"the board's answer is {error.message}", "try again") from error
    if not isinstance(plain, dict):
        raise BadOutputError("the board's answer is not an object", "try again")
    return plain


def _checked(reply: Reply) -> Reply:
    """The reply, unless it reports a failure."""
    if "busy" in reply:
        raise BoardBusyError(
            f"the board is in use: {shortened(visible_line(str(reply['busy'])))}",
            "wait until the other sweep has ended",
            ask_again_s=_BUSY_S,
        )
    if "error" in reply:
        failure = from_plain(Failure, reply["error"])
        raise _class_of(failure)(failure.message, failure.remedy)
    return reply


def _class_of(failure: Failure) -> type[AgentError]:
    if failure.kind is ErrorKind.DISK_FULL:
        return StorageFullError
    return TransientError if failure.is_transient else PermanentError


def _not_installed(host: str, reply: Reply) -> AgentError:
    found = shortened(visible_line(str(reply.get("found"))), 300)
    if reply.get("problem") == "python":
        return UnusableDeviceError(
            f"{host} has Python {found}, and the measuring code needs 3.10",
            "install a newer one there, such as by `uv python install 3.11`, and name it with "
            "`python=PATH`",
        )
    if reply.get("problem") == "storage":
        return UnusableDeviceError(
            f"{host}: the measuring code cannot be stored: {found}",
            "free some space in the home folder there, and make it writable",
        )
    return TransientError(f"the measuring code arrived damaged at {host}: {found}", "try again")


# The files that a task needs on a board: artifact, weights, primer, inputs; and which it lacks.

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


# Packs the measuring code for a board: the worker with all it imports, in one compressed file.
#
# Its zip file is compressed as a whole: modules resemble each other, so this takes a fifth less.

_PREFIX = "fleetrank."
_ROOTS = (
    "fleetrank.device_agents.worker.__main__",
    "fleetrank.device_agents.board.there.commands",
)
_NAMED = ("fleetrank.device_agents.runtimes", "fleetrank.device_agents.profiling")
"""Their modules are named in tables, not imported."""
_MAIN = """\
import os
import sys

# Also where the environment takes a program's folder off the path (PYTHONSAFEPATH).
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
if sys.argv[1:] == ["worker"]:
    from fleetrank.device_agents.worker.__main__ import main
else:
    from fleetrank.device_agents.board.there.commands import main
sys.exit(main())
"""
_MOMENT = (2020, 1, 1, 0, 0, 0)
"""Of each file, so that equal code gives an equal file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBundle:
    """A zip file under zlib; its `__main__.py` starts the worker with `worker`, else a command."""

    content: bytes
    sha256: str


@cache
def code_bundle() -> CodeBundle:
    """The code of this installation; the same for the life of the process."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for path, text in (("__main__.py", _MAIN), *_files()):
            archive.writestr(zipfile.ZipInfo(path, _MOMENT), text)
    content = zlib.compress(stream.getvalue(), 9)
    return CodeBundle(content=content, sha256=hashlib.sha256(content).hexdigest())


def _files() -> Iterator[tuple[str, str]]:
    modules = measuring_modules()
    for name, path in sorted(modules.items()):
        yield f"{name.replace('.', '/')}.py", without_notes(path.read_text(encoding="utf-8"))
    for package in sorted(_packages(modules) - set(modules)):
        yield f"{package.replace('.', '/')}/__init__.py", ""


def _packages(modules: dict[str, Path]) -> set[str]:
    """The packages of these modules; they have docstrings only, so they are sent empty."""
    found = set()
    for name in modules:
        parts = name.split(".")
        found |= {".".join(parts[:length]) for length in range(1, len(parts))}
    return found


def without_notes(text: str) -> str:
    """A module's text with empty docstrings and without comments: it travels.

    The number of each line stays, so an error on a board names the line of our own file.
    """
    lines = text.split("\n")
    lines = ["" if line.lstrip().startswith("#") else line for line in lines]
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            lines[first:last] = [f'{" " * node.col_offset}""', *[""] * (last - first - 1)]
    return "\n".join(lines)


@cache
def measuring_modules() -> dict[str, Path]:
    """Every module that the worker or a command can import, by name; packages left out."""
    waiting = [*_ROOTS, *_named_modules()]
    found: dict[str, Path] = {}
    while waiting:
        name = waiting.pop()
        path = _path_of(name)
        if name in found or path is None:
            continue
        found[name] = path
        waiting += _imports_of(path)
    return found


def _named_modules() -> Iterator[str]:
    root = Path(fleetrank.device_agents.__path__[0])
    for package in _NAMED:
        folder = root / package.rpartition(".")[2]
        for path in folder.rglob("*.py"):
            if path.name != "__init__.py":
                inside = path.relative_to(folder).with_suffix("")
                yield ".".join((package, *inside.parts))


def _imports_of(path: Path) -> Iterator[str]:
    """Names that a module imports anywhere, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.startswith(_PREFIX))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_PREFIX):
            yield str(node.module)
            # A name may be a module of that package.
            yield from (f"{node.module}.{one.name}" for one in node.names)


def _path_of(name: str) -> Path | None:
    """The file of a module of these two packages; `None` for a package, which is a folder."""
    for package in (fleetrank.device_agents, fleetrank.foundation):
        if name.startswith(f"{package.__name__}."):
            inside = name[len(package.__name__) + 1 :].split(".")
            path = Path(package.__path__[0]).joinpath(*inside).with_suffix(".py")
            return path if path.is_file() else None
    return None

"""Calls the host of a board, and installs the code there first.

Every call is one command over `SshConnection`: `there.join`, which leads to the host's process.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from fleetrank.device_agents.board import first_contact
from fleetrank.device_agents.board.board_state import TURN_S, BoardOptions
from fleetrank.device_agents.board.code_bundle import code_bundle
from fleetrank.device_agents.board.ssh import SshConnection, SshTarget
from fleetrank.device_agents.board.there.join import REPLY_MARK
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.errors import (
    AgentError,
    BadOutputError,
    NotFitError,
    PermanentError,
    StoppedError,
    StorageFullError,
    TransientError,
    UnusableDeviceError,
)
from fleetrank.device_agents.hosts.files import file_parts
from fleetrank.foundation.codec import CodecError, Json, from_plain, parse_json, to_plain
from fleetrank.foundation.supervised_child import MAX_RESULT_BYTES, ChildEnd, End
from fleetrank.foundation.visible_text import shortened, visible_line
from fleetrank.foundation.vocabulary import ErrorKind

FOLDER = ".cache/fleetrank-board"
"""Below the home folder, where ssh starts commands."""
SHORT_S = 60.0
"""For a command that does little: a slow board starts Python in two seconds."""
_PUSH_BYTES_PER_S = 100_000
"""Slower than any link that would be used for models of 100 MB."""
_PART_BYTES = 8 << 20
"""A part takes the board this much memory for a moment."""
_CHUNK_BYTES = 1 << 18
START = "import sys; exec(sys.stdin.buffer.read(int(sys.argv[1])))"
"""Runs the program that comes first on standard input: its text meets no shell."""
Reply = Mapping[str, Json]


def _has_reply(received: bytearray) -> bool:
    at = received.rfind(REPLY_MARK.encode())
    return at >= 0 and received.find(b"\n", at) >= 0


def connection_to(options: BoardOptions) -> SshConnection:
    """The connection to the board with these options; opens nothing yet."""
    return SshConnection(SshTarget(host=options.ssh, config=options.ssh_config))


class BoardLink:
    """The code on one board. Safe to use from any thread.

    Args:
        connection: to the board.
        python: name or path of its Python.

    Attributes:
        boot: name of the board's last start, as of the last call; `None` if it has none.
    """

    def __init__(self, connection: SshConnection, python: str) -> None:
        self._connection = connection
        self._python = python
        self.boot: Json = None

    @property
    def host(self) -> str:
        """The board's name for ssh."""
        return self._connection.target.host

    def call(
        self,
        method: str,
        *arguments: object,
        content: bytes = b"",
        timeout_s: float = SHORT_S,
        stop_requested: StopRequested = never_stop,
    ) -> Json:
        """Calls a method of the board's host; installs the code first if the board lacks it.

        Args:
            method: of `HOST_CALLS`.
            arguments: of it.
            content: of a `FilePart` among the arguments.
            timeout_s: the board must have answered by then.
            stop_requested: ends the call; the host goes on, but for an inference.

        Returns:
            The answer as JSON.

        Raises:
            TransientError: no connection, or it ended.
            PermanentError: the board cannot run the code, or its disk is full.
            StoppedError: the user stopped it.
            FleetError: the error of the method.
        """
        plain = [to_plain(one) for one in arguments]
        request = {"method": method, "arguments": plain, "n_bytes": len(content)}

        def run() -> ChildEnd:
            return self._connection.run(
                [self._python, f"{FOLDER}/code/{code_bundle().sha256}/__main__.py", "join"],
                sent=(f"{json.dumps(request)}\n".encode(), *_chunks(content)),
                timeout_s=timeout_s,
                stop_requested=stop_requested,
                is_complete=_has_reply,
            )

        end = run()
        if _lacks_code(end):
            self.install()
            end = run()
        reply = self._reply(end)
        if "answer" not in reply:
            raise _error_in(reply)
        self.boot = reply.get("boot")
        return reply["answer"]

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
            [self._python, "-c", START, str(len(program)), FOLDER, size, sha256],
            sent=(program, bundle.content),
            timeout_s=SHORT_S + len(bundle.content) / _PUSH_BYTES_PER_S,
        )
        reply = self._reply(end)
        if "installed" not in reply:
            raise _not_installed(self.host, reply)

    def send(self, path: Path, name: str, stop_requested: StopRequested = never_stop) -> None:
        """Sends a file under a name to the board's host, in parts; the host verifies its sha256.

        Raises:
            NotFitError: something is still measured there.
            StorageFullError: the board has no room.
            TransientError: the connection ended.
        """
        for part in file_parts(path, name, _PART_BYTES):
            self.call(
                "receive",
                replace(part, content=b""),
                content=part.content,
                timeout_s=SHORT_S + TURN_S + len(part.content) / _PUSH_BYTES_PER_S,
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


def _chunks(content: bytes) -> Iterator[bytes]:
    """Pieces after which a stop is noticed."""
    for start in range(0, len(content), _CHUNK_BYTES):
        yield content[start : start + _CHUNK_BYTES]


def _parsed(text: str) -> Reply:
    try:
        plain = parse_json(text)
    except CodecError as error:
        raise BadOutputError(f"the board's answer is {error.message}", "try again") from error
    if not isinstance(plain, dict):
        raise BadOutputError("the board's answer is not an object", "try again")
    return plain


def _error_in(reply: Reply) -> AgentError:
    """The error of a reply without an answer."""
    if "problem" in reply:
        said = shortened(visible_line(str(reply["problem"])), 300)
        return TransientError(said, "free memory and disk of the board")
    failure = failure_in(reply.get("error"))
    if failure.wait is not None:
        wait = failure.wait
        return NotFitError(failure.message, failure.remedy, wait.ask_again_s, wait.limit_s)
    kind: type[AgentError] = TransientError if failure.is_transient else PermanentError
    if failure.kind is ErrorKind.DISK_FULL:
        kind = StorageFullError
    return kind(failure.message, failure.remedy)


def failure_in(plain: Json) -> Failure:
    """The failure in an answer.

    Raises:
        BadOutputError: it is none.
    """
    try:
        return from_plain(Failure, plain)
    except CodecError as error:
        raise no_result(error.message) from error


def lacking(plain: Json, files: Mapping[str, str]) -> Mapping[str, Path]:
    """The files that a board says it lacks, by name; `files` are names by path.

    Raises:
        BadOutputError: it names other files.
    """
    paths = {name: Path(path) for path, name in files.items()}
    names = plain if isinstance(plain, list) else [plain]
    if not set(map(str, names)) <= paths.keys():
        raise no_result("it lacks files that this task does not use")
    return {str(name): paths[str(name)] for name in names}


def no_result(why: str) -> BadOutputError:
    """The error of an answer that is not what was asked for."""
    return BadOutputError(f"the board's answer is not a result: {why}", "try again")


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

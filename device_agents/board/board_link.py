"""Talks to the code on a board: installs it, sends artifacts, and asks for a repeat.

Every call is one command over `SshConnection`. `there.commands` answers.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from fleetrank.device_agents.board import first_contact
from fleetrank.device_agents.board.code_bundle import code_bundle
from fleetrank.device_agents.board.ssh import Dialogue, SshConnection
from fleetrank.device_agents.board.there.commands import REPLY_MARK
from fleetrank.device_agents.board.there.line import ACKNOWLEDGED, FINISH
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
from fleetrank.foundation.codec import CodecError, Json, from_plain, parse_json
from fleetrank.foundation.supervised_child import MAX_RESULT_BYTES, ChildEnd, End
from fleetrank.foundation.visible_text import shortened, visible_line
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

"""One phone: run a script, push a file, pull a file. Every failure is a typed error.

No shell interprets a serial, a model name, a path or a property as code. Scripts are our own
literals; data are arguments.
"""

import hashlib
import secrets
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fleetrank.device_agents.android.adb_server import ASK_TIMEOUT_S, AdbServer
from fleetrank.device_agents.android.adb_text import error_of_refusal, is_network_serial, shown
from fleetrank.device_agents.android.file_sync import fetch_file, send_file
from fleetrank.device_agents.android.phone_streams import ShellResult, read_marked, read_packets
from fleetrank.device_agents.android.smart_socket import RefusedRequestError, SmartSocket
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.device_output import MAX_PROBE_BYTES
from fleetrank.device_agents.errors import BadOutputError, StorageFullError, TransientError

MARK_BYTES = 16
"""Length of the random mark. No output can contain it by chance or on purpose."""
_SETTLE = """
sum=$(sha256sum < "$1") || { rm -f -- "$1"; exit 3; }
[ "${sum%% *}" = "$2" ] || { rm -f -- "$1"; exit 4; }
mv -f -- "$1" "$3" || exit
rm -f -- "$3".*.part
"""
"""It also removes partial files of earlier pushes that lost the connection."""
_NO_ROOM = "No space left on device"


class Phone:
    """A phone behind an adb server, named by its serial. It keeps no connection between calls.

    It keeps what the phone's shell can do: asking before each call costs as much as half a call
    to a server that is far away.
    """

    def __init__(self, server: AdbServer, serial: str) -> None:
        """Does no I/O; the first call finds out whether the phone is attached."""
        self.server = server
        self.serial = serial
        self._has_exit_codes: bool | None = None

    def connect(self) -> None:
        """Connects to a phone on the network. A USB phone or an open connection is fine.

        Raises the same errors as `AdbServer.connect`.
        """
        self._has_exit_codes = None  # a phone that comes back may have been updated
        if is_network_serial(self.serial):
            self.server.connect(self.serial)

    def disconnect(self) -> None:
        """Disconnects a phone on the network, so that the next `connect` opens a new connection."""
        if is_network_serial(self.serial):
            self.server.disconnect(self.serial)

    def has_exit_codes(self) -> bool:
        """Whether the phone's shell reports exit codes (shell v2); others get a marker line."""
        if self._has_exit_codes is None:
            with self._errors(), self.server.open(ASK_TIMEOUT_S) as connection:
                connection.request(f"host-serial:{self.serial}:features")
                self._has_exit_codes = "shell_v2" in connection.read_block().split(",")
        return self._has_exit_codes

    def shell(
        self,
        script: str,
        *arguments: str,
        timeout_s: float,
        stop_requested: StopRequested = never_stop,
        max_bytes: int = MAX_PROBE_BYTES,
    ) -> ShellResult:
        """Runs one of our scripts on the phone and waits for its end.

        Args:
            script: a literal; it reads the data as "$1", "$2", ...
            arguments: data; no shell interprets them as code.
            timeout_s: after this time the stream is closed and `TimedOutError` is raised.
            stop_requested: asked while waiting; `True` raises `StoppedError`.
            max_bytes: the most output that is read; more raises an error.

        Returns:
            The exit code, whatever its value, and all output, with long lines cut. On a phone
            without shell v2, standard error is mixed into standard output.

        Raises:
            TransientError: lost, offline or no answer; partial output is never returned.
            PermanentError: unauthorized.
            BadOutputError: it wrote more than `max_bytes`.
        """
        if any("\0" in text for text in arguments):
            raise BadOutputError("an argument contains a NUL character", "correct the name")
        words = " ".join(
            shlex.quote(text) for text in ("sh", "-c", script, "fleetrank", *arguments)
        )
        command = f"{words} </dev/null"
        has_exit_codes = self.has_exit_codes()
        with self._errors(), self._reach(timeout_s, stop_requested) as connection:
            if has_exit_codes:
                connection.request(f"shell,v2,raw:{command}")
                return read_packets(connection, max_bytes)
            mark = secrets.token_hex(MARK_BYTES)
            connection.request(f"shell:{command} 2>&1; code=$?; echo; echo {mark} $code")
            return read_marked(connection, mark, max_bytes)

    def push(self, local: Path, remote: str, timeout_s: float, *, mode: int = 0o644) -> None:
        """Copies a file to the phone: writes a temporary file, checks its SHA-256, renames it.

        Args:
            local: the file.
            remote: absolute path on the phone; its folder must exist.
            timeout_s: for the transfer, and again for the check.
            mode: of the file on the phone; 0o755 for a program.

        Raises:
            StorageFullError: the phone does not have enough space.
            TransientError: the connection was lost, or the content changed on the way.
        """
        aside = f"{remote}.{secrets.token_hex(4)}.part"
        digest = hashlib.sha256()
        with self._errors(), self._reach(timeout_s) as connection:
            connection.request("sync:")
            try:
                send_file(connection, local, aside, mode=mode, digest=digest)
            except RefusedRequestError as error:
                self._discard(aside)
                raise self._push_error(remote, str(error)) from error
        result = self.shell(_SETTLE, aside, digest.hexdigest(), remote, timeout_s=timeout_s)
        if result.exit_code == 4:
            raise TransientError(
                f"{remote!r} arrived on phone {self.serial!r} with different content",
                "check cable and hub; the transfer will be retried",
            )
        if result.exit_code != 0:
            raise self._push_error(remote, result.stderr or result.stdout)

    def pull(self, remote: str, local: Path, *, max_bytes: int, timeout_s: float) -> None:
        """Copies one file from the phone to exactly `local`, through a temporary file.

        Raises:
            BadOutputError: the file does not exist, is not regular, or is larger than `max_bytes`.
            TransientError: the connection was lost.
        """
        aside = local.with_name(f"{local.name}.part")
        try:
            with self._errors(), self._reach(timeout_s) as connection:
                connection.request("sync:")
                self._fetch(connection, remote, aside, max_bytes)
            aside.replace(local)
        finally:
            aside.unlink(missing_ok=True)

    def _fetch(self, connection: SmartSocket, remote: str, aside: Path, max_bytes: int) -> None:
        try:
            fetch_file(connection, remote, aside, max_bytes=max_bytes)
        except RefusedRequestError as error:
            raise BadOutputError(
                f"phone {self.serial!r} does not send {remote!r}: {shown(str(error))}",
                "read the stored output of the program that should have written it",
            ) from error

    def _reach(self, timeout_s: float, stop_requested: StopRequested = never_stop) -> SmartSocket:
        """Opens a connection whose next request goes to the phone."""
        connection = self.server.open(timeout_s, stop_requested)
        try:
            connection.request(f"host:transport:{self.serial}")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except RefusedRequestError as error:
            raise error_of_refusal(self.serial, str(error)) from error

    def _discard(self, remote: str) -> None:
        try:
            self.shell('rm -f -- "$1"', remote, timeout_s=ASK_TIMEOUT_S)
        except TransientError:
            return  # the error that the caller raises next is more precise

    def _push_error(self, remote: str, text: str) -> StorageFullError | TransientError:
        message = f"phone {self.serial!r} does not accept {remote!r}: {shown(text)}"
        if _NO_ROOM in text:
            return StorageFullError(
                message, "free space on the phone; `fleetrank devices remove` cleans our folder"
            )
        return TransientError(message, "check that /data/local/tmp on the phone is writable")


PROLOGUE = """
section() { printf '\\n%s %s\\n' "$mark" "$1"; }
mark=$1
"""
"""The start of a script with sections; `section NAME` begins the next section."""


def read_sections(
    phone: Phone,
    script: str,
    *,
    timeout_s: float,
    stop_requested: StopRequested = never_stop,
) -> Mapping[str, str]:
    """Runs one of our scripts and returns the text of each section, by name.

    If a command fails on the phone, its section is empty: the value is unknown, and this is not
    an error. Raises the same errors as `Phone.shell`.
    """
    mark = secrets.token_hex(8)
    result = phone.shell(
        PROLOGUE + script, mark, timeout_s=timeout_s, stop_requested=stop_requested
    )
    return split_sections(result.stdout, mark)


def split_sections(text: str, mark: str) -> dict[str, str]:
    """Splits a script's output into sections; text before the first section is dropped."""
    sections: dict[str, str] = {}
    for part in text.split(f"\n{mark} ")[1:]:
        name, _, content = part.partition("\n")
        sections[name] = content.strip("\n")
    return sections

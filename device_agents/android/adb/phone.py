"""One phone: run a script, push a file, pull a file; every way to fail is a typed error.

Nothing of a serial, a model name, a path or a property is ever read by a shell as code: scripts
are literals of ours, data are arguments.
"""

import hashlib
import secrets
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetrank.device_agents.android.adb.adb_server import ASK_TIMEOUT_S, AdbServer
from fleetrank.device_agents.android.adb.adb_text import error_of_refusal, is_network_serial, shown
from fleetrank.device_agents.android.adb.shell_stream import ShellResult, read_marked, read_packets
from fleetrank.device_agents.android.adb.smart_socket import RefusedRequestError, SmartSocket
from fleetrank.device_agents.android.adb.sync_stream import fetch_file, send_file
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.device_output.device_text import MAX_PROBE_BYTES
from fleetrank.device_agents.errors import BadOutputError, StorageFullError, TransientError

MARK_BYTES = 16
"""Of the random mark, which no output can hold by chance or on purpose."""
_SETTLE = """
sum=$(sha256sum < "$1") || { rm -f -- "$1"; exit 3; }
[ "${sum%% *}" = "$2" ] || { rm -f -- "$1"; exit 4; }
mv -f -- "$1" "$3" || exit
rm -f -- "$3".*.part
"""
"""Also removes what pushes of the same file left that lost the phone before they came to this."""
_NO_ROOM = "No space left on device"


class Phone:
    """A phone behind an adb server, named by its serial; keeps no connection between calls."""

    def __init__(self, server: AdbServer, serial: str) -> None:
        """Touches nothing; the first call finds out whether the phone is there."""
        self.server = server
        self.serial = serial

    def connect(self) -> None:
        """Connects to a phone on the network; one on a cable, or connected already, is fine.

        Raises what `AdbServer.connect` raises.
        """
        if is_network_serial(self.serial):
            self.server.connect(self.serial)

    def disconnect(self) -> None:
        """Lets a phone on the network go, so that the next `connect` begins anew."""
        if is_network_serial(self.serial):
            self.server.disconnect(self.serial)

    def has_exit_codes(self) -> bool:
        """Whether the phone's shell tells exit codes (shell v2); the others get a marker line."""
        with self._errors(), self.server.open(ASK_TIMEOUT_S) as connection:
            connection.request(f"host-serial:{self.serial}:features")
            return "shell_v2" in connection.read_block().split(",")

    def shell(
        self,
        script: str,
        *arguments: str,
        timeout_s: float,
        stop_requested: StopRequested = never_stop,
        max_bytes: int = MAX_PROBE_BYTES,
    ) -> ShellResult:
        """Runs a script of ours on the phone and waits for its end.

        Args:
            script: a literal; it finds the data as "$1", "$2", ...
            arguments: data; no shell reads them as code.
            timeout_s: then the stream is closed and `TimedOutError` raised.
            stop_requested: asked while waiting; `True` raises `StoppedError`.
            max_bytes: that it may write; nothing beyond is read.

        Returns:
            Its exit code, whatever it is, and all it wrote, with long lines cut. A phone without
            shell v2 gives standard error among the standard output.

        Raises:
            TransientError: lost, offline or silent; partial output is never returned.
            PermanentError: unauthorized.
            BadOutputError: it wrote more than `max_bytes`.
        """
        if any("\0" in text for text in arguments):
            raise BadOutputError("an argument holds a NUL character", "correct the name")
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
        """Copies a file to the phone: written aside, checked by SHA-256, renamed.

        Args:
            local: the file.
            remote: absolute path on the phone; its folder is there.
            timeout_s: for the transfer, and again for the check.
            mode: of the file on the phone; 0o755 for a program.

        Raises:
            StorageFullError: the phone has no room for it.
            TransientError: lost on the way, or arrived changed.
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
                f"{remote!r} arrived on phone {self.serial!r} with another content",
                "check cable and hub; the transfer is tried again",
            )
        if result.exit_code != 0:
            raise self._push_error(remote, result.stderr or result.stdout)

    def pull(self, remote: str, local: Path, *, max_bytes: int, timeout_s: float) -> None:
        """Copies one file from the phone to `local` and to nowhere else, written aside first.

        Raises:
            BadOutputError: there is no such regular file, or it is larger than `max_bytes`.
            TransientError: lost on the way.
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
                f"phone {self.serial!r} does not give {remote!r}: {shown(str(error))}",
                "look at the kept output of the tool that should have written it",
            ) from error

    def _reach(self, timeout_s: float, stop_requested: StopRequested = never_stop) -> SmartSocket:
        """A connection whose next request goes to the phone."""
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
            return  # the error that is about to be raised says more

    def _push_error(self, remote: str, text: str) -> StorageFullError | TransientError:
        message = f"phone {self.serial!r} does not take {remote!r}: {shown(text)}"
        if _NO_ROOM in text:
            return StorageFullError(
                message, "free space on the phone; `fleetrank devices remove` cleans our folder"
            )
        return TransientError(message, "check that /data/local/tmp can be written on the phone")

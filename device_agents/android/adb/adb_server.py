"""Finds the adb binary, starts its server, and asks the server about all phones.

Only the binary chosen here starts the server. A client whose protocol number differs from the
server's kills the server in the middle of measurements (adb 29 and 36 both use 1.0.41).
"""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from fleetrank.device_agents.android.adb.adb_text import (
    MdnsService,
    SeenDevice,
    error_of_refusal,
    is_connected,
    parse_devices,
    parse_mdns_services,
    shown,
)
from fleetrank.device_agents.android.adb.smart_socket import RefusedRequestError, SmartSocket
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.errors import MissingLibraryError, PermanentError, TransientError
from fleetrank.foundation.lease import never_give_up, open_lease, runtime_folder, wait_for_lock

ADB_VARIABLE = "FLEETRANK_ADB"
PORT_VARIABLE = "ANDROID_ADB_SERVER_PORT"
DEFAULT_PORT = 5037
"""The default of adb, which its variable overrides. A running server is then shared."""
START_TIMEOUT_S = 30.0
"""adb 36 looks for USB devices for 3 s before it answers; a loaded host takes longer."""
ASK_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 15.0
"""adb itself waits 10 s for a phone that accepts the connection and sends nothing."""
_VERSION = re.compile(r"^Version (\S+)", re.MULTILINE)


def find_adb(given: str | None = None) -> Path:
    """Chooses the adb binary: the given one, `FLEETRANK_ADB`, adbutils' wheel, then PATH.

    Raises:
        PermanentError: the given file does not exist.
        MissingLibraryError: no adb was found.
    """
    chosen = given or os.environ.get(ADB_VARIABLE)
    if chosen:
        path = Path(chosen).expanduser().absolute()
        if not path.is_file():
            raise PermanentError(
                f"the file {path} does not exist", f"correct the path, or unset {ADB_VARIABLE}"
            )
        return path
    spec = importlib.util.find_spec("adbutils")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "binaries" / "adb"
        if bundled.is_file():
            return bundled
    found = shutil.which("adb")
    if found is None:
        raise MissingLibraryError(
            "no adb was found on this host",
            f"install the extra `android`, which contains adb, or set {ADB_VARIABLE} to your adb",
        )
    return Path(found)


def find_port() -> int:
    """Returns the port of the server, from adb's own variable.

    Raises:
        PermanentError: the variable is not a port number.
    """
    text = os.environ.get(PORT_VARIABLE, str(DEFAULT_PORT))
    if not re.fullmatch(r"\d{1,5}", text, re.ASCII) or not 0 < int(text) < 65536:
        raise PermanentError(
            f"{PORT_VARIABLE} is {text!r}, which is not a port", f"unset it or set {DEFAULT_PORT}"
        )
    return int(text)


class AdbServer:
    """The adb server at a port of this host. It is started if needed; no connection is kept."""

    def __init__(self, adb: Path | None = None, port: int | None = None) -> None:
        """Chooses binary and port by `find_adb` and `find_port` if none is given."""
        self.adb = find_adb() if adb is None else adb
        self.port = find_port() if port is None else port

    def version(self) -> str:
        """The binary's version, as `36.0.0-13206524`. Every row measured through it stores it."""
        match = _VERSION.search(self._run("version"))
        if match is None:
            raise PermanentError(
                f"{self.adb} does not print its version", "give the path of a working adb"
            )
        return match.group(1)

    def start(self) -> None:
        """Starts the server if it does not run.

        Raises:
            TransientError: it did not start in time.
            PermanentError: the binary cannot run, or reports an error.
        """
        self._run("-P", str(self.port), "start-server")

    def open(self, timeout_s: float, stop_requested: StopRequested = never_stop) -> SmartSocket:
        """Opens a connection to the server. It starts the server if no server answers.

        Raises:
            TransientError: the server does not answer and cannot be started now.
        """
        try:
            return SmartSocket(self.port, timeout_s=timeout_s, stop_requested=stop_requested)
        except OSError:
            self._start_once()
        try:
            return SmartSocket(self.port, timeout_s=timeout_s, stop_requested=stop_requested)
        except OSError as error:
            raise TransientError(
                f"no adb server answers at port {self.port}: {error}",
                f"run `{self.adb} -P {self.port} start-server` and read its output",
            ) from error

    def _start_once(self) -> None:
        """Starts the server unless another thread or process does: two starts at once both fail.

        All phones notice at the same moment that a server was killed.
        """
        with open_lease(runtime_folder() / f"adb-{self.port}.lease") as lease:
            wait_for_lock(lease, never_give_up)
            if self.answers():
                return
            try:
                self.start()
            except PermanentError as error:
                if not self.answers():
                    # The task did not cause this failure, so it is retried.
                    raise TransientError(error.message, error.remedy) from error

    def answers(self) -> bool:
        """Whether a server runs on the port; does not start one."""
        try:
            SmartSocket(self.port, timeout_s=ASK_TIMEOUT_S).close()
        except OSError:
            return False
        return True

    def devices(self) -> tuple[SeenDevice, ...]:
        """Lists all devices that the server sees now, in any state."""
        try:
            return parse_devices(self._ask("host:devices-l"))
        except RefusedRequestError as error:
            raise error_of_refusal("", str(error)) from error

    def mdns_services(self) -> tuple[MdnsService, ...]:
        """Lists phones that announce themselves; empty if this adb cannot search (before 30)."""
        try:
            return parse_mdns_services(self._ask("host:mdns:services"))
        except RefusedRequestError:
            return ()

    def connect(self, address: str) -> None:
        """Connects to a phone over the network. An existing connection is not an error.

        Raises:
            PermanentError: the phone does not accept this computer's key.
            TransientError: the phone cannot be reached; the remedy says what to check.
        """
        try:
            text = self._ask(f"host:connect:{address}", CONNECT_TIMEOUT_S)
        except RefusedRequestError as error:
            text = str(error)
        if not is_connected(text):
            raise error_of_refusal(address, text)

    def disconnect(self, address: str) -> None:
        """Disconnects a phone on the network. An unknown phone is not an error."""
        try:
            self._ask(f"host:disconnect:{address}")
        except RefusedRequestError:
            return

    def _ask(self, service: str, timeout_s: float = ASK_TIMEOUT_S) -> str:
        with self.open(timeout_s) as connection:
            connection.request(service)
            return connection.read_block()

    def _run(self, *arguments: str) -> str:
        try:
            ended = subprocess.run(
                [str(self.adb), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=START_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TransientError(
                f"`{self.adb} {' '.join(arguments)}` did not end in {START_TIMEOUT_S:g} s",
                "stop adb servers that do not respond, and try again",
            ) from error
        except OSError as error:
            raise PermanentError(
                f"{self.adb} cannot be run: {error}", f"set {ADB_VARIABLE} to an adb that runs"
            ) from error
        text = ended.stdout.decode("utf-8", errors="replace")
        if ended.returncode != 0:
            raise PermanentError(
                f"`{self.adb} {' '.join(arguments)}` failed: {shown(text)}",
                f"check that port {self.port} is free, or set {PORT_VARIABLE} to another port",
            )
        return text

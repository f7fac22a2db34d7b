"""Finds the adb binary and its server, starts the server, and asks it about all phones.

Only the binary chosen here starts the server. A client whose protocol number differs from the
server's kills the server in the middle of measurements (adb 29 and 36 both use 1.0.41). For the
same reason no server is started on another host, nor where one of another program was seen: its
owner starts it again, and two would kill each other. Nor where only a device file names a server:
it may be the end of a tunnel, which could not be opened again.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from fleetrank.device_agents.android.adb_address import (
    DEFAULT_HOST,
    HOST_VARIABLE,
    PORT_VARIABLE,
    SOCKET_VARIABLE,
    find_address,
    parse_address,
)
from fleetrank.device_agents.android.adb_text import (
    MdnsService,
    error_of_refusal,
    is_connected,
    parse_devices,
    parse_mdns_services,
    shown,
)
from fleetrank.device_agents.android.smart_socket import RefusedRequestError, SmartSocket
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.kind import SeenDevice
from fleetrank.device_agents.errors import MissingLibraryError, PermanentError, TransientError
from fleetrank.foundation.lease import never_give_up, open_lease, runtime_folder, wait_for_lock

ADB_VARIABLE = "FLEETRANK_ADB"
START_TIMEOUT_S = 30.0
"""adb 36 looks for USB devices for 3 s before it answers; a loaded host takes longer."""
ASK_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 15.0
"""adb itself waits 10 s for a phone that accepts the connection and sends nothing."""
_ADDRESS_VARIABLES = frozenset({SOCKET_VARIABLE, HOST_VARIABLE})
_THIS_HOST = frozenset({"127.0.0.1", "localhost", "::1"})
_OURS, _FOREIGN = "ours", "foreign"
_VERSION = re.compile(r"^Version (\S+)", re.MULTILINE)


def client_environment() -> dict[str, str]:
    """Of the binary: its address is decided here, and it would prefer these to its arguments."""
    return {n: v for n, v in os.environ.items() if n not in _ADDRESS_VARIABLES}


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


class AdbServer:
    """One adb server; on this host it is started if needed. No connection is kept."""

    def __init__(
        self, adb: Path | None = None, port: int | None = None, *, address: str | None = None
    ) -> None:
        """Chooses what is not given by `find_adb` and `find_address`.

        Args:
            adb: the binary.
            port: of a server on this host.
            address: `HOST:PORT` of a server, as option `adb_server` of a device gives it.

        Raises:
            PermanentError: no binary, or no such address.
        """
        self.adb = find_adb() if adb is None else adb
        self._is_named = address is not None
        if address is not None:
            self.host, self.port = parse_address(address, "option adb_server")
        else:
            self.host, self.port = find_address() if port is None else (DEFAULT_HOST, port)

    @property
    def address(self) -> str:
        """`HOST:PORT`, as option `adb_server` takes it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

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
        if self.answers():
            return
        # Before it answers: a process that sees a server without an owner takes it for foreign.
        self._owner_file.write_text(_OURS, encoding="ascii")
        self._run("-P", str(self.port), "start-server")

    def open(self, timeout_s: float, stop_requested: StopRequested = never_stop) -> SmartSocket:
        """Opens a connection to the server. It starts the server if it may and none answers.

        Raises:
            TransientError: the server does not answer and cannot be started now.
        """
        try:
            return self._connect(timeout_s, stop_requested)
        except OSError as error:
            self._start_once(error)
        try:
            return self._connect(timeout_s, stop_requested)
        except OSError as error:
            raise TransientError(
                f"no adb server answers at port {self.port}: {error}",
                f"run `{self.adb} -P {self.port} start-server` and read its output",
            ) from error

    def _connect(self, timeout_s: float, stop_requested: StopRequested = never_stop) -> SmartSocket:
        """Connects, and remembers a server that fleetrank did not start."""
        connection = SmartSocket(
            self.host, self.port, timeout_s=timeout_s, stop_requested=stop_requested
        )
        if self.host in _THIS_HOST and not self._owner_file.exists():
            self._owner_file.write_text(_FOREIGN, encoding="ascii")
        return connection

    @property
    def _owner_file(self) -> Path:
        """Says who started the server at this port, for all processes of this user."""
        return runtime_folder() / f"adb-{self.port}.owner"

    def _refuse_start(self, error: OSError) -> None:
        """Returns if a server may be started here."""
        if self.host not in _THIS_HOST:
            raise TransientError(
                f"no adb server answers at {self.address}: {error}",
                f"start it on {self.host}; fleetrank starts none on another host. The address is "
                f"from the device's option adb_server, {SOCKET_VARIABLE} or {HOST_VARIABLE}",
            )
        owner = self._owner_file.read_text("ascii") if self._owner_file.exists() else None
        if self._is_named and owner is None:
            raise TransientError(
                f"no adb server answers at {self.address}: {error}",
                "open the tunnel to it, or start it: fleetrank starts none where only the option "
                "adb_server of a device names one",
            )
        if owner == _FOREIGN:
            raise TransientError(
                f"the adb server at port {self.port}, which fleetrank did not start, does not "
                f"answer any more: {error}",
                f"start it again as before, or run `{self.adb} -P {self.port} start-server`",
            )

    def _start_once(self, missing: OSError) -> None:
        """Starts the server unless another thread or process does: two starts at once both fail.

        All phones notice at the same moment that a server was killed.
        """
        self._refuse_start(missing)
        with open_lease(runtime_folder() / f"adb-{self.port}.lease") as lease:
            wait_for_lock(lease, never_give_up)
            try:
                self.start()
            except PermanentError as error:
                if not self.answers():
                    # The task did not cause this failure, so it is retried.
                    raise TransientError(error.message, error.remedy) from error

    def answers(self) -> bool:
        """Whether a server runs there; does not start one."""
        try:
            self._connect(ASK_TIMEOUT_S).close()
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
                env=client_environment(),
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

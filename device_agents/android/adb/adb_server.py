"""Which adb is used, its server, and what the server is asked about all phones.

The server is started by the binary chosen here and no other: clients whose protocol number differs
from the server's (adb 29 and 36 both say 1.0.41) end it, in the middle of measurements.
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
from fleetrank.device_agents.host.file_lease import open_lease, wait_for_lock
from fleetrank.device_agents.host.host_lease import never_give_up, runtime_folder

ADB_VARIABLE = "FLEETRANK_ADB"
PORT_VARIABLE = "ANDROID_ADB_SERVER_PORT"
DEFAULT_PORT = 5037
"""adb's own default and variable, so that a server that runs already is shared."""
START_TIMEOUT_S = 30.0
"""adb 36 looks for USB devices for 3 s before it answers; a loaded host takes longer."""
ASK_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 15.0
"""adb itself gives a phone that takes the connection and says nothing 10 s."""
_VERSION = re.compile(r"^Version (\S+)", re.MULTILINE)


def find_adb(given: str | None = None) -> Path:
    """Chooses the adb binary: the given one, `FLEETRANK_ADB`, adbutils' wheel, then PATH.

    Raises:
        PermanentError: the given file is not there.
        MissingLibraryError: there is no adb anywhere.
    """
    chosen = given or os.environ.get(ADB_VARIABLE)
    if chosen:
        path = Path(chosen).expanduser().absolute()
        if not path.is_file():
            raise PermanentError(
                f"there is no adb at {path}", f"correct the path, or unset {ADB_VARIABLE}"
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
            "there is no adb on this host",
            f"install the extra `android` (it brings one), or set {ADB_VARIABLE} to yours",
        )
    return Path(found)


def find_port() -> int:
    """The port of the server, from adb's own variable.

    Raises:
        PermanentError: the variable holds no port.
    """
    text = os.environ.get(PORT_VARIABLE, str(DEFAULT_PORT))
    if not re.fullmatch(r"\d{1,5}", text, re.ASCII) or not 0 < int(text) < 65536:
        raise PermanentError(
            f"{PORT_VARIABLE} is {text!r}, which is no port", f"unset it or set {DEFAULT_PORT}"
        )
    return int(text)


class AdbServer:
    """The adb server at a port of this host; started when it does not run. Keeps no connection."""

    def __init__(self, adb: Path | None = None, port: int | None = None) -> None:
        """Chooses binary and port by `find_adb` and `find_port` where none is given."""
        self.adb = find_adb() if adb is None else adb
        self.port = find_port() if port is None else port

    def version(self) -> str:
        """The binary's version, as `36.0.0-13206524`: a fact of every row made through it."""
        match = _VERSION.search(self._run("version"))
        if match is None:
            raise PermanentError(
                f"{self.adb} does not tell its version", "give the path of a real adb"
            )
        return match.group(1)

    def start(self) -> None:
        """Starts the server unless it runs.

        Raises:
            TransientError: it did not start in time.
            PermanentError: the binary cannot run, or refuses.
        """
        self._run("-P", str(self.port), "start-server")

    def open(self, timeout_s: float, stop_requested: StopRequested = never_stop) -> SmartSocket:
        """Opens a connection to the server, starting it when none answers.

        Raises:
            TransientError: the server does not answer, and cannot be started now.
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
                f"run `{self.adb} -P {self.port} start-server` and look at what it says",
            ) from error

    def _start_once(self) -> None:
        """Starts the server when nobody else does: two that start at once fail both.

        A server that was killed is missed by every phone in the same moment.
        """
        with open_lease(runtime_folder() / f"adb-{self.port}.lease") as lease:
            wait_for_lock(lease, never_give_up)
            if self.answers():
                return
            try:
                self.start()
            except PermanentError as error:
                if not self.answers():
                    # No task is at fault: what failed is tried again.
                    raise TransientError(error.message, error.remedy) from error

    def answers(self) -> bool:
        """Whether a server runs on the port; starts none."""
        try:
            SmartSocket(self.port, timeout_s=ASK_TIMEOUT_S).close()
        except OSError:
            return False
        return True

    def devices(self) -> tuple[SeenDevice, ...]:
        """All devices the server sees now, in any state."""
        try:
            return parse_devices(self._ask("host:devices-l"))
        except RefusedRequestError as error:
            raise error_of_refusal("", str(error)) from error

    def mdns_services(self) -> tuple[MdnsService, ...]:
        """Phones that announce themselves; empty where this adb cannot look (before 30)."""
        try:
            return parse_mdns_services(self._ask("host:mdns:services"))
        except RefusedRequestError:
            return ()

    def connect(self, address: str) -> None:
        """Connects to a phone over the network; done already is fine.

        Raises:
            PermanentError: the phone does not accept this computer's key.
            TransientError: it cannot be reached; the remedy says what to look at.
        """
        try:
            text = self._ask(f"host:connect:{address}", CONNECT_TIMEOUT_S)
        except RefusedRequestError as error:
            text = str(error)
        if not is_connected(text):
            raise error_of_refusal(address, text)

    def disconnect(self, address: str) -> None:
        """Forgets a phone on the network; one that is not known is fine."""
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
                "end adb servers that hang, and try again",
            ) from error
        except OSError as error:
            raise PermanentError(
                f"{self.adb} cannot be run: {error}", f"set {ADB_VARIABLE} to one that can"
            ) from error
        text = ended.stdout.decode("utf-8", errors="replace")
        if ended.returncode != 0:
            raise PermanentError(
                f"`{self.adb} {' '.join(arguments)}` failed: {shown(text)}",
                f"check that port {self.port} is free, or set {PORT_VARIABLE} to another",
            )
        return text

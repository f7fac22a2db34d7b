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
import socket
import stat
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Protocol

from fleetrank.device_agents.android.adb_text import (
    DEFAULT_HOST,
    HOST_VARIABLE,
    PORT_VARIABLE,
    SOCKET_VARIABLE,
    MdnsService,
    error_of_refusal,
    find_address,
    is_connected,
    parse_address,
    parse_devices,
    parse_mdns_services,
    shown,
)
from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.kind import SeenDevice
from fleetrank.device_agents.device_output import MAX_PROBE_BYTES, cut_lines, decode_output, refused
from fleetrank.device_agents.errors import (
    BadOutputError,
    MissingLibraryError,
    PermanentError,
    StoppedError,
    TimedOutError,
    TransientError,
)
from fleetrank.foundation.lease import never_give_up, open_lease, runtime_folder, wait_for_lock

# One connection to the adb server. Every wait on it ends at a deadline.
#
# adbutils is not used. Its client starts another server on the default port if none answers, its
# transfers wait without limit, its `send` may send half, and a dropped shell looks finished.
#
# Source: `docs/dev/services.md` and `docs/dev/protocol.md` of packages/modules/adb: a request is
#     its length in four hexadecimal digits and its text; the answer is OKAY, or FAIL and a block.

LOST_REMEDY = "check the cable, the hub and the phone; the repeat will be retried"
POLL_S = 0.1
"""How often a wait checks the stop request: fast enough for Ctrl-C."""
MAX_REQUEST_BYTES = 0xFFFF
"""The length has four hexadecimal digits."""
CHUNK_BYTES = 64 * 1024


class RefusedRequestError(Exception):
    """The server or the phone answered FAIL; the argument is its text."""


class SmartSocket:
    """A connection to an adb server; a context manager."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float,
        stop_requested: StopRequested = never_stop,
    ) -> None:
        """Connects.

        Args:
            host: of the server, a name or an address.
            port: of the server.
            timeout_s: for all operations on this connection together.
            stop_requested: asked while waiting.

        Raises:
            OSError: no server answers there.
        """
        self._timeout_s = timeout_s
        self._deadline_ns = time.perf_counter_ns() + int(timeout_s * 1e9)
        self._stop_requested = stop_requested
        self._socket = socket.create_connection((host, port), timeout=max(timeout_s, POLL_S))
        self._socket.settimeout(POLL_S)
        # Requests are small and each waits for its answer, so none may wait for a fuller packet.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "SmartSocket":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; the server then ends the service on the phone."""
        self._socket.close()

    def request(self, service: str) -> None:
        """Asks for a service and waits until it is granted.

        Raises:
            RefusedRequestError: the service was rejected.
            TransientError: the connection ended.
            TimedOutError: no answer by the deadline.
        """
        payload = service.encode("utf-8", errors="surrogateescape")
        if len(payload) > MAX_REQUEST_BYTES:
            raise PermanentError(
                f"a request of {len(payload)} bytes is too long for adb",
                f"use shorter names; the limit is {MAX_REQUEST_BYTES} bytes",
            )
        self.send(f"{len(payload):04x}".encode() + payload)
        self.expect_okay()

    def expect_okay(self) -> None:
        """Reads OKAY, or raises an error with the server's message; see `request`."""
        answer = self.receive_exactly(4)
        if answer == b"FAIL":
            raise RefusedRequestError(self.read_block())
        if answer != b"OKAY":
            raise TransientError(
                f"the adb server answers {shown(repr(answer))} instead of OKAY",
                "check that this port belongs to an adb server",
            )

    def read_block(self) -> str:
        """Reads a text that follows its length."""
        digits = self.receive_exactly(4)
        try:
            length = int(digits, 16)
        except ValueError as error:
            raise TransientError(
                f"the adb server answers {shown(repr(digits))} instead of a length",
                "check that this port belongs to an adb server",
            ) from error
        return self.receive_exactly(length).decode("utf-8", errors="replace")

    def send(self, data: bytes) -> None:
        """Sends all data.

        Raises:
            TransientError: the other side closed the connection.
            TimedOutError: the other side accepts no more data before the deadline.
        """
        rest = memoryview(data)
        while rest:
            self._check_time()
            try:
                rest = rest[self._socket.send(rest) :]
            except TimeoutError:
                continue
            except OSError as error:
                raise _dropped() from error

    def receive(self, limit: int = CHUNK_BYTES) -> bytes:
        """Returns available data, at most `limit` bytes, and waits for the first; empty at the end.

        Raises:
            TransientError: the connection broke.
            TimedOutError: no data before the deadline.
        """
        while True:
            self._check_time()
            try:
                return self._socket.recv(limit)
            except TimeoutError:
                continue
            except OSError as error:
                raise _dropped() from error

    def receive_exactly(self, size: int) -> bytes:
        """Receives exactly `size` bytes; an earlier end raises `TransientError`."""
        received = bytearray()
        while len(received) < size:
            chunk = self.receive(min(size - len(received), CHUNK_BYTES))
            if not chunk:
                raise _dropped()
            received += chunk
        return bytes(received)

    def _check_time(self) -> None:
        if self._stop_requested():
            raise StoppedError("stopped on request", "resume the sweep")
        if time.perf_counter_ns() >= self._deadline_ns:
            raise TimedOutError(
                f"no end after {self._timeout_s:g} s",
                "check that the phone is awake and responds; raise timeout_s for slow models",
            )


def _dropped() -> TransientError:
    return TransientError("the connection to the phone was interrupted", LOST_REMEDY)


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
                # The address is decided here; adb would prefer these to its arguments.
                env={n: v for n, v in os.environ.items() if n not in _ADDRESS_VARIABLES},
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


# What flows through an open connection to a phone: a script's output, or one file.
#
# A file is sent or fetched in adb's sync protocol, version 1, which every phone and every server
# supports. The phone never names a path of this host.
#
# Source: `shell_protocol.h` of packages/modules/adb: a packet is one byte for its kind, four
#     bytes for its length (little endian), and the data. `docs/dev/sync.md`: four letters, a number
#     of four bytes (little endian), and that many bytes of data.

_STDOUT, _STDERR, _EXIT = 1, 2, 3
_LINE_END = re.compile(r"(?<!\r)\r++\n")
"""The terminal's line end; the pattern scans a run of carriage returns only once."""
_EXIT_CODE = re.compile(r"\d{1,3}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellResult:
    """The exit code and the output of a script.

    Attributes:
        exit_code: 128 and more if a signal ended the program.
        stderr: empty on a phone without shell v2, which mixes it into `stdout`.
    """

    exit_code: int
    stdout: str
    stderr: str


def read_packets(connection: SmartSocket, max_bytes: int) -> ShellResult:
    """Reads a shell v2 stream up to its exit packet; raises if that packet is missing.

    Raises:
        BadOutputError: more than `max_bytes`; a longer packet is not received.
    """
    streams = {_STDOUT: bytearray(), _STDERR: bytearray()}
    n_received = 0
    while True:
        header = connection.receive_exactly(5)
        kind, length = header[0], int.from_bytes(header[1:], "little")
        n_received += length
        if n_received > max_bytes:
            raise _too_much(max_bytes, streams[_STDOUT] or streams[_STDERR])
        data = connection.receive_exactly(length)
        if kind == _EXIT and data:
            return ShellResult(
                exit_code=data[0],
                stdout=decode_output(streams[_STDOUT]),
                stderr=decode_output(streams[_STDERR]),
            )
        if kind in streams:
            streams[kind] += data


def read_marked(connection: SmartSocket, mark: str, max_bytes: int) -> ShellResult:
    """Reads a plain stream, whose last line must be the mark and the exit code.

    Raises:
        BadOutputError: more than `max_bytes`.
    """
    received = bytearray()
    while chunk := connection.receive(CHUNK_BYTES):
        received += chunk
        if len(received) > max_bytes:
            raise _too_much(max_bytes, received)
    return split_marked(received.decode("utf-8", errors="replace"), mark)


def split_marked(text: str, mark: str) -> ShellResult:
    """Splits a script's output from the mark and the exit code after it.

    The terminal of a phone without shell v2 adds a carriage return to line ends.

    Raises:
        TransientError: the mark is missing, so the stream ended before the script.
    """
    plain = _LINE_END.sub("\n", text)
    output, found, code = plain.removesuffix("\n").rpartition(f"\n{mark} ")
    if not found or _EXIT_CODE.fullmatch(code) is None:
        raise TransientError("the connection to the phone was interrupted", LOST_REMEDY)
    return ShellResult(exit_code=int(code), stdout=cut_lines(output), stderr="")


def _too_much(max_bytes: int, read: bytearray) -> BadOutputError:
    return refused(f"the phone wrote more than {max_bytes} bytes for one command", bytes(read))


MAX_DATA_BYTES = 1024 * 1024
"""The protocol's limit is 64 KiB; the check protects against a phone that announces gigabytes."""


class Digest(Protocol):
    """Receives the bytes during a transfer; hashlib's objects fulfil it."""

    def update(self, data: bytes, /) -> None:
        """Adds the next bytes."""
        ...


def send_file(
    connection: SmartSocket, local: Path, remote: str, *, mode: int, digest: Digest
) -> None:
    """Sends a file over a connection in sync mode.

    Raises:
        RefusedRequestError: the phone rejects the file; the argument is its text.
        TransientError: the connection ended.
    """
    with local.open("rb") as file:
        try:
            _send(connection, b"SEND", f"{remote},{stat.S_IFREG | mode}".encode())
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
                _send(connection, b"DATA", chunk)
            now_s = int(datetime.now(UTC).timestamp())
            connection.send(b"DONE" + now_s.to_bytes(4, "little"))
        except TransientError:
            _read_status(connection)  # a rejecting phone closes while data is still sent
            raise
    _read_status(connection)


def fetch_file(connection: SmartSocket, remote: str, local: Path, *, max_bytes: int) -> None:
    """Writes a file of the phone to `local`, over a connection in sync mode.

    Raises:
        RefusedRequestError: the phone rejects the request; the argument is its text.
        BadOutputError: not a regular file, larger than `max_bytes`, or not of the announced size.
        TransientError: the connection ended.
    """
    size = _stat_size(connection, remote)
    if size > max_bytes:
        raise BadOutputError(
            f"{remote!r} on the phone has {size} bytes, more than {max_bytes}",
            "read the stored output of the program that wrote it",
        )
    _send(connection, b"RECV", remote.encode())
    received = 0
    with local.open("wb") as file:
        while (chunk := _read_data(connection)) is not None:
            received += len(chunk)
            if received > size:
                break
            file.write(chunk)
    if received != size:
        raise BadOutputError(
            f"{remote!r} on the phone has {received} bytes, but {size} were announced",
            "check that no other program writes the file",
        )


def _stat_size(connection: SmartSocket, remote: str) -> int:
    _send(connection, b"STAT", remote.encode())
    answer = connection.receive_exactly(16)
    mode, size = (int.from_bytes(answer[at : at + 4], "little") for at in (4, 8))
    if answer[:4] != b"STAT":
        raise _not_sync(answer[:4])
    if not stat.S_ISREG(mode):
        raise RefusedRequestError("no such file" if mode == 0 else "not a regular file")
    return size


def _read_data(connection: SmartSocket) -> bytes | None:
    kind, length = _read_header(connection)
    if kind == b"DONE":
        return None
    if kind != b"DATA":
        raise _not_sync(kind)
    return connection.receive_exactly(length)


def _read_status(connection: SmartSocket) -> None:
    kind, _ = _read_header(connection)
    if kind != b"OKAY":
        raise _not_sync(kind)


def _read_header(connection: SmartSocket) -> tuple[bytes, int]:
    header = connection.receive_exactly(8)
    kind, length = header[:4], int.from_bytes(header[4:], "little")
    if length > MAX_DATA_BYTES and kind != b"DONE":
        raise _not_sync(kind)
    if kind == b"FAIL":
        if length > MAX_PROBE_BYTES:
            raise _not_sync(kind)
        text = connection.receive_exactly(length)
        raise RefusedRequestError(text.decode("utf-8", errors="replace"))
    return kind, length


def _send(connection: SmartSocket, kind: bytes, data: bytes) -> None:
    connection.send(kind + len(data).to_bytes(4, "little") + data)


def _not_sync(kind: bytes) -> BadOutputError:
    return BadOutputError(
        f"the phone answers {kind!r}, which is not part of adb's sync protocol", "update its adbd"
    )

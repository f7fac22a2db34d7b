"""What flows through an open connection to a phone: a script's output, or one file.

A file is sent or fetched in adb's sync protocol, version 1, which every phone and every server
supports. The phone never names a path of this host.

Source: `shell_protocol.h` of packages/modules/adb: a packet is one byte for its kind, four
    bytes for its length (little endian), and the data. `docs/dev/sync.md`: four letters, a number
    of four bytes (little endian), and that many bytes of data.
"""

import re
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from fleetrank.device_agents.android.adb.smart_socket import (
    CHUNK_BYTES,
    LOST_REMEDY,
    RefusedRequestError,
    SmartSocket,
)
from fleetrank.device_agents.device_output import (
    MAX_PROBE_BYTES,
    cut_lines,
    decode_output,
    refused,
)
from fleetrank.device_agents.errors import BadOutputError, TransientError

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

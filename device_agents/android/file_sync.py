"""Sends a file to a phone or fetches one, in adb's sync protocol, version 1."""

import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from fleetrank.device_agents.android.smart_socket import (
    CHUNK_BYTES,
    RefusedRequestError,
    SmartSocket,
)
from fleetrank.device_agents.device_output import MAX_PROBE_BYTES
from fleetrank.device_agents.errors import BadOutputError, TransientError

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

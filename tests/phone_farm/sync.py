"""File transfer to and from the phone: adb's sync protocol in its first form.

No profile announces the second one, so every client speaks the first.

Source: AOSP adb `SYNC.TXT` and `file_sync_protocol.h`.
"""

import asyncio
import errno
import os
import secrets
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from phone_farm.faults import Fault
from phone_farm.phone import VirtualPhone
from phone_farm.stream import Stream, StreamClosedError

MAX_DATA_BYTES = 64 * 1024
"""Limit of one DATA block, from the protocol."""
MAX_FILE_BYTES = 4 * 1024**3
"""Limit of one push, which is kept in memory until it is complete."""
MAX_PATH_BYTES = 1024
DROP_AFTER_BYTES = 32 * 1024
"""Number of bytes after which the cable is pulled in a push; a smaller file is cut at its end."""

_REQUEST = struct.Struct("<4sI")
_STAT = struct.Struct("<4sIII")
_ENTRY = struct.Struct("<4sIIII")

_HOSTILE = ("../../../../escaped", "/tmp/escaped", "a/../../escaped", "..", "new\nline", "$(id)")


async def serve_files(phone: VirtualPhone, stream: Stream) -> None:
    """Answers requests until QUIT, or until an unknown request."""
    session = _Session(phone, stream)
    while await session.answer():
        pass


class _Session:
    def __init__(self, phone: VirtualPhone, stream: Stream) -> None:
        self._phone = phone
        self._stream = stream

    async def answer(self) -> bool:
        """Answers one request; `False` ends the session."""
        word, size = _REQUEST.unpack(await self._stream.read_exactly(_REQUEST.size))
        if word == b"QUIT" or size > MAX_PATH_BYTES:
            return False
        raw = await self._stream.read_exactly(size)
        path = raw.decode("utf-8", errors="surrogateescape")
        match word:
            case b"STAT":
                await self._stat(path)
            case b"LIST":
                await self._list(path)
            case b"SEND":
                path, _, mode = path.rpartition(",")
                return await self._receive_file(path, mode_of(mode))
            case b"RECV":
                await self._send_file(path)
            case _:
                await self._fail(f"unknown command {word!r}")
                return False
        return True

    async def _stat(self, path: str) -> None:
        file = self._phone.paths.file(path)
        facts = (0, 0, 0)
        if file is not None:
            with suppress(OSError):
                facts = _facts(file.lstat())
        await self._stream.write(_STAT.pack(b"STAT", *facts))

    async def _list(self, path: str) -> None:
        for name, found in self._entries(path):
            raw = name.encode("utf-8", errors="surrogateescape")
            await self._stream.write(_ENTRY.pack(b"DENT", *_facts(found), len(raw)) + raw)
        await self._stream.write(_ENTRY.pack(b"DONE", 0, 0, 0, 0))

    def _entries(self, path: str) -> Iterator[tuple[str, os.stat_result]]:
        folder = self._phone.paths.file(path)
        if folder is None or not folder.is_dir():
            return
        with os.scandir(folder) as entries:
            for entry in entries:
                yield entry.name, entry.stat(follow_symlinks=False)
        if self._phone.has_fault(Fault.HOSTILE_NAMES):
            for name in _HOSTILE:
                yield name, Path(__file__).stat()

    async def _send_file(self, path: str) -> bool:
        file = self._phone.paths.file(path)
        if file is None:
            return await self._fail(f"open failed: {os.strerror(errno.ENOENT)}")
        try:
            data = await asyncio.to_thread(file.read_bytes)
        except OSError as error:
            return await self._fail(f"open failed: {error.strerror}")
        for start in range(0, len(data), MAX_DATA_BYTES):
            part = data[start : start + MAX_DATA_BYTES]
            await self._stream.write(_REQUEST.pack(b"DATA", len(part)) + part)
        await self._stream.write(_REQUEST.pack(b"DONE", 0))
        return True

    async def _receive_file(self, path: str, mode: int) -> bool:
        """Receives a file or link through a temporary file; after an error it reads the rest."""
        file = self._phone.paths.file(path)
        error = None if file is not None else os.strerror(errno.EACCES)
        content = bytearray()
        while True:
            word, size = _REQUEST.unpack(await self._stream.read_exactly(_REQUEST.size))
            if word == b"DONE":
                break
            if word != b"DATA" or size > MAX_DATA_BYTES or len(content) > MAX_FILE_BYTES:
                await self._fail(f"unexpected {word!r} of {size} bytes")
                return False
            content += await self._stream.read_exactly(size)
            self._drop_in_the_middle(len(content), DROP_AFTER_BYTES)
        self._drop_in_the_middle(DROP_AFTER_BYTES, DROP_AFTER_BYTES)
        if file is None or error is not None:
            return await self._fail(error or "")
        if self._phone.has_fault(Fault.STORAGE_FULL):
            return await self._fail(f"write failed: {os.strerror(errno.ENOSPC)}")
        try:
            await asyncio.to_thread(_store, file, bytes(content), mode, size)
        except OSError as failed:
            return await self._fail(f"couldn't create file: {failed.strerror}")
        await self._stream.write(_REQUEST.pack(b"OKAY", 0))
        return True

    def _drop_in_the_middle(self, received_bytes: int, limit_bytes: int) -> None:
        if received_bytes >= limit_bytes and self._phone.take(Fault.DROP_PUSH):
            self._stream.cut()
            raise StreamClosedError

    async def _fail(self, message: str) -> bool:
        raw = message.encode()
        await self._stream.write(_REQUEST.pack(b"FAIL", len(raw)) + raw)
        return True


def mode_of(text: str) -> int:
    """The mode that a client sends in decimal; an invalid mode becomes that of a plain file."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 6 else 0o644


def _store(file: Path, content: bytes, mode: int, modified_s: int) -> None:
    """Writes a pushed file with the mode and the time from the client.

    Raises:
        OSError: the host's error; also for a link, because fleetrank never pushes one.
    """
    if stat.S_ISLNK(mode):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{secrets.token_hex(8)}.part")
    try:
        aside.write_bytes(content)
        aside.chmod(mode & 0o777 | 0o600)
        os.utime(aside, (modified_s, modified_s))
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)


def _facts(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mode, min(found.st_size, 0xFFFFFFFF), int(found.st_mtime) & 0xFFFFFFFF

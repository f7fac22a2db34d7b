"""File transfer to and from the phone: adb's sync protocol, first and second form.

Source: AOSP adb `SYNC.TXT` and `file_sync_protocol.h`.
"""

import asyncio
import errno
import os
import secrets
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from fleetrank.device_agents.virtual_phone.daemon.adb_stream import Stream, StreamClosedError
from fleetrank.device_agents.virtual_phone.handset.faults import Fault
from fleetrank.device_agents.virtual_phone.handset.virtual_phone import VirtualPhone

MAX_DATA_BYTES = 64 * 1024
"""Limit of one DATA block, from the protocol."""
MAX_FILE_BYTES = 4 * 1024**3
"""Limit of one push, which is kept in memory until it is complete."""
MAX_PATH_BYTES = 1024
DROP_AFTER_BYTES = 32 * 1024
"""Number of bytes after which the cable is pulled in a push; a smaller file is cut at its end."""

_REQUEST = struct.Struct("<4sI")
_STAT_V1 = struct.Struct("<4sIII")
_STAT_V2 = struct.Struct("<4sIQQIIIIQqqq")
_ENTRY_V1 = struct.Struct("<4sIIII")
_ENTRY_V2 = struct.Struct("<4sIQQIIIIQqqqI")
_SETUP_SEND_V2 = struct.Struct("<4sII")
_SETUP_RECEIVE_V2 = struct.Struct("<4sI")

_HOSTILE = ("../../../../escaped", "/tmp/escaped", "a/../../escaped", "..", "new\nline", "$(id)")  # noqa: S108

_NOT_FOUND = OSError(errno.ENOENT, "No such file or directory")


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
                await self._stat_v1(path)
            case b"STA2" | b"LST2":
                await self._stat_v2(word, path)
            case b"LIST" | b"LIS2":
                await self._list(path, is_v2=word == b"LIS2")
            case b"SEND":
                path, _, mode = path.rpartition(",")
                return await self._receive_file(path, mode_of(mode))
            case b"SND2":
                setup = await self._stream.read_exactly(_SETUP_SEND_V2.size)
                _, mode_number, flags = _SETUP_SEND_V2.unpack(setup)
                return await self._without_flags(flags) and await self._receive_file(
                    path, mode_number
                )
            case b"RECV":
                await self._send_file(path)
            case b"RCV2":
                setup = await self._stream.read_exactly(_SETUP_RECEIVE_V2.size)
                _, flags = _SETUP_RECEIVE_V2.unpack(setup)
                return await self._without_flags(flags) and await self._send_file(path)
            case _:
                await self._fail(f"unknown command {word!r}")
                return False
        return True

    async def _without_flags(self, flags: int) -> bool:
        """Rejects flags: we do not announce compression and dry runs in our banner."""
        if flags:
            await self._fail(f"unsupported flags {flags:#x}")
        return not flags

    async def _stat_v1(self, path: str) -> None:
        found = self._find(path, follows=False)
        facts = (0, 0, 0) if isinstance(found, OSError) else _short(found)
        await self._stream.write(_STAT_V1.pack(b"STAT", *facts))

    async def _stat_v2(self, word: bytes, path: str) -> None:
        found = self._find(path, follows=word == b"STA2")
        await self._stream.write(_STAT_V2.pack(word, *_long(found)))

    async def _list(self, path: str, *, is_v2: bool) -> None:
        entry, word = (_ENTRY_V2, b"DNT2") if is_v2 else (_ENTRY_V1, b"DENT")
        for name, found in self._entries(path):
            raw = name.encode("utf-8", errors="surrogateescape")
            facts = _long(found) if is_v2 else _short(found)
            await self._stream.write(entry.pack(word, *facts, len(raw)) + raw)
        await self._stream.write(entry.pack(b"DONE", *[0] * (12 if is_v2 else 4)))

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

    def _find(self, path: str, *, follows: bool) -> os.stat_result | OSError:
        file = self._phone.paths.file(path)
        if file is None:
            return _NOT_FOUND
        try:
            return file.stat() if follows else file.lstat()
        except OSError as error:
            return error

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


def _short(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mode, min(found.st_size, 0xFFFFFFFF), int(found.st_mtime) & 0xFFFFFFFF


def _long(found: os.stat_result | OSError) -> tuple[int, ...]:
    if isinstance(found, OSError):
        return (found.errno or errno.EIO, *[0] * 10)
    return (
        0, found.st_dev, found.st_ino, found.st_mode, found.st_nlink, found.st_uid, found.st_gid,
        found.st_size, int(found.st_atime), int(found.st_mtime), int(found.st_ctime),
    )  # fmt: skip

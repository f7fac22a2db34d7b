"""One stream of adb messages: a pipe with adb's flow control."""

import asyncio
from collections.abc import Awaitable, Callable

from phone_farm.wire import Command, Message

Send = Callable[[Message], Awaitable[None]]
Cut = Callable[[], None]
"""Ends the connection below the stream without a message, like a pulled cable."""

MAX_WAITING_MESSAGES = 4
"""A client that sends without waiting for OKAY violates the protocol; its stream is cut."""


class StreamClosedError(Exception):
    """The client closed the stream, or the connection is lost; used only inside this package."""


class Stream:
    """The stream that one OPEN started.

    After our WRTE we wait for the client's OKAY before the next; a WRTE of the client gets its
    OKAY after the service has read it.
    """

    def __init__(
        self, own_id: int, client_id: int, *, send: Send, cut: Cut, max_payload_bytes: int
    ) -> None:
        self.own_id = own_id
        self.client_id = client_id
        self.cut = cut
        self.closed = asyncio.Event()
        self._send = send
        self._max_payload_bytes = max_payload_bytes
        self._writing = asyncio.Lock()
        self._arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._may_write = asyncio.Event()
        self._buffer = bytearray()

    async def accept(self) -> None:
        """Reports to the client that its OPEN has found a service."""
        self._may_write.set()
        await self._send(Message(command=Command.OKAY, first=self.own_id, second=self.client_id))

    def take(self, payload: bytes) -> None:
        """Keeps a WRTE of the client until the service reads it."""
        if self._arrived.qsize() >= MAX_WAITING_MESSAGES:
            self.end()
        else:
            self._arrived.put_nowait(payload)

    def allow(self) -> None:
        """The client's OKAY: it has received the last message."""
        self._may_write.set()

    def end(self) -> None:
        """The client's CLSE, or the end of the connection: wakes all readers and writers."""
        self.closed.set()
        self._may_write.set()
        self._arrived.put_nowait(None)

    async def read(self) -> bytes:
        """Returns the next data, in pieces of any size; raises `StreamClosedError` at the end."""
        if self._buffer:
            data = bytes(self._buffer)
            self._buffer.clear()
            return data
        payload = await self._arrived.get()
        if payload is None:
            self._arrived.put_nowait(None)  # the next read ends too
            raise StreamClosedError
        await self._send(Message(command=Command.OKAY, first=self.own_id, second=self.client_id))
        return payload

    async def read_exactly(self, size: int) -> bytes:
        """Returns `size` bytes; raises `StreamClosedError` if they do not arrive."""
        while len(self._buffer) < size:
            held = bytes(self._buffer)
            self._buffer.clear()
            self._buffer += held + await self.read()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    async def write(self, data: bytes) -> None:
        """Sends all data, not mixed with other writes, in messages of the agreed size."""
        async with self._writing:
            for start in range(0, len(data), self._max_payload_bytes):
                await self._write_part(data[start : start + self._max_payload_bytes])

    async def _write_part(self, part: bytes) -> None:
        await self._may_write.wait()
        if self.closed.is_set():
            raise StreamClosedError
        self._may_write.clear()
        await self._send(
            Message(command=Command.WRTE, first=self.own_id, second=self.client_id, payload=part)
        )

    async def drain(self) -> None:
        """Waits until the client has received the last message; closing earlier could lose it."""
        await self._may_write.wait()

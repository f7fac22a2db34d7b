"""One client on the port of one phone: handshake, proof of the key, streams."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial

from phone_farm.faults import Fault
from phone_farm.keys import TOKEN_BYTES, is_signed
from phone_farm.phone import VirtualPhone
from phone_farm.shell import serve_packets, serve_plain
from phone_farm.stream import Stream, StreamClosedError
from phone_farm.sync import serve_files
from phone_farm.wire import (
    HEADER_BYTES,
    VERSION_WITH_CHECKSUM,
    AuthKind,
    Command,
    Message,
    ProtocolError,
    decode_header,
    decode_message,
    encode,
)

Service = Callable[[Stream], Awaitable[None]]


def find_service(name: str, phone: VirtualPhone) -> Service | None:
    """Returns the service for the stream, or `None` if this phone does not offer it.

    Args:
        name: as the client sends it: `shell,v2,raw:ls`, `exec:ls`, `sync:`, `reboot:`.
        phone: the phone.
    """
    if "\0" in name:
        return None
    kind, _, argument = name.partition(":")
    kind, *options = kind.split(",")
    if kind == "shell" and "v2" in options:
        has_packets = "shell_v2" in phone.features()
        return partial(serve_packets, phone, argument) if has_packets else None
    if kind in ("shell", "exec"):
        return partial(serve_plain, phone, argument)
    if kind == "sync":
        return partial(serve_files, phone)
    if kind == "reboot":
        return partial(_reboot, phone)
    return None


async def _reboot(phone: VirtualPhone, stream: Stream) -> None:
    del stream  # a phone sends nothing before it restarts
    phone.begin_reboot()


SMALLEST_PAYLOAD_BYTES = 4096
"""A limit that every version of the protocol accepts."""
MAX_STREAMS = 256
"""Limit of streams for one client at a time; adb itself opens one per command."""
END_TIMEOUT_S = 2.0

_logger = logging.getLogger(__name__)


async def end_tasks(tasks: Collection[asyncio.Task[None]]) -> None:
    """Waits for tasks that were asked to end, and cancels those that do not.

    A task that is cancelled during its cleanup leaves processes and pipes behind.
    """
    if not tasks:
        return
    _, late = await asyncio.wait(tasks, timeout=END_TIMEOUT_S)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)


class Connection:
    """Handles the device's side of the protocol until the client closes or a fault cuts it."""

    def __init__(
        self, phone: VirtualPhone, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._phone = phone
        self._reader = reader
        self._writer = writer
        self._version = VERSION_WITH_CHECKSUM
        self._max_payload_bytes = SMALLEST_PAYLOAD_BYTES
        self._token: bytes | None = None
        self._is_known = False
        self._client_version = VERSION_WITH_CHECKSUM
        self._client_max_bytes = SMALLEST_PAYLOAD_BYTES
        self._streams: dict[int, Stream] = {}
        self._services: set[asyncio.Task[None]] = set()
        self._last_id = 0

    async def serve(self) -> None:
        """Runs until the connection ends; all its streams and commands end with it."""
        try:
            while not self._writer.is_closing():
                message = await self._receive()
                await self._phone.wait_while_hung()
                await self._obey(message)
        except (asyncio.IncompleteReadError, ConnectionError, StreamClosedError):
            return  # the client has closed the connection
        except ProtocolError as error:
            _logger.warning("phone %s: %s", self._phone.serial, error)
        finally:
            await self._end()

    def cut(self) -> None:
        """Closes the socket without a message, like a pulled cable."""
        self._writer.transport.abort()

    async def _end(self) -> None:
        self.cut()
        for stream in self._streams.values():
            stream.end()
        await end_tasks(self._services)
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _receive(self) -> Message:
        header = decode_header(await self._reader.readexactly(HEADER_BYTES))
        payload = await self._reader.readexactly(header.payload_bytes)
        return decode_message(header, payload, version=self._version)

    async def _send(self, message: Message) -> None:
        await self._phone.wait_while_hung()
        self._writer.write(encode(message, version=self._version))
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise StreamClosedError from error

    async def _obey(self, message: Message) -> None:
        if message.command == Command.CNXN:
            await self._greet(message)
        elif message.command == Command.AUTH:
            await self._check_key(message)
        elif not self._is_known:
            raise ProtocolError("a message before the key was proved", "authorize first")
        elif message.command == Command.OPEN:
            await self._open(message)
        else:
            self._pass_on(message)

    async def _greet(self, message: Message) -> None:
        self._client_version = message.first
        self._client_max_bytes = message.second
        if not self._phone.has_fault(Fault.OFFLINE):
            await self._ask_for_key()

    async def _ask_for_key(self) -> None:
        self._token = secrets.token_bytes(TOKEN_BYTES)
        await self._send(
            Message(command=Command.AUTH, first=AuthKind.TOKEN, second=0, payload=self._token)
        )

    async def _check_key(self, message: Message) -> None:
        """Accepts a signature made with the user's key.

        An offered public key is not accepted: on a phone a person would be asked, here only the
        user's own key exists, and its owner signs. Without an answer the client stays
        'unauthorized', like with a phone whose dialog is not answered.
        """
        if message.first != AuthKind.SIGNATURE or self._token is None:
            return
        token, self._token = self._token, None
        key = None if self._phone.has_fault(Fault.UNAUTHORIZED) else self._phone.read_key()
        if key is None or not is_signed(token, message.payload, key):
            await self._ask_for_key()
            return
        self._is_known = True
        await self._send(
            Message(
                command=Command.CNXN,
                first=self._phone.profile.protocol_version,
                second=self._phone.profile.max_payload_bytes,
                payload=self._phone.banner(),
            )
        )
        self._version = min(self._client_version, self._phone.profile.protocol_version)
        self._max_payload_bytes = min(self._client_max_bytes, self._phone.profile.max_payload_bytes)

    async def _open(self, message: Message) -> None:
        name = message.payload.rstrip(b"\0").decode("utf-8", errors="surrogateescape")
        service = find_service(name, self._phone)
        if service is None or len(self._streams) >= MAX_STREAMS:
            await self._send(Message(command=Command.CLSE, first=0, second=message.first))
            return
        self._last_id += 1
        stream = Stream(
            self._last_id,
            message.first,
            send=self._send,
            cut=self.cut,
            max_payload_bytes=self._max_payload_bytes,
        )
        self._streams[stream.own_id] = stream
        await stream.accept()
        task = asyncio.create_task(self._run(service, stream))
        self._services.add(task)
        task.add_done_callback(self._services.discard)

    async def _run(self, service: Service, stream: Stream) -> None:
        try:
            await service(stream)
            await stream.drain()
        except StreamClosedError:
            pass
        except OSError as error:  # the host's disk is full, or there are too many processes
            _logger.warning("phone %s: %s", self._phone.serial, error)
        self._streams.pop(stream.own_id, None)
        if not stream.closed.is_set():
            stream.end()
        with suppress(StreamClosedError):
            await self._send(
                Message(command=Command.CLSE, first=stream.own_id, second=stream.client_id)
            )

    def _pass_on(self, message: Message) -> None:
        stream = self._streams.get(message.second)
        if stream is None:
            return  # the stream ended a moment ago
        if message.command == Command.WRTE:
            stream.take(message.payload)
        elif message.command == Command.OKAY:
            stream.allow()
        else:
            stream.end()

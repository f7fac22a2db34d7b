"""Several virtual phones in one process; each has its own port."""

import asyncio
import logging
import secrets
import threading
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from fleetrank.device_agents.contract.kind import VirtualMode
from fleetrank.device_agents.errors import PermanentError
from fleetrank.device_agents.virtual_phone.profile import (
    DEFAULT_PROFILES,
    Fault,
    Injection,
    find_profile,
)
from fleetrank.device_agents.virtual_phone.shell_service import (
    HEADER_BYTES,
    VERSION_WITH_CHECKSUM,
    AuthKind,
    Command,
    Message,
    ProtocolError,
    Stream,
    StreamClosedError,
    decode_header,
    decode_message,
    encode,
    end_programs,
    serve_files,
    serve_packets,
    serve_plain,
)
from fleetrank.device_agents.virtual_phone.virtual_phone import (
    TOKEN_BYTES,
    PhoneSpec,
    VirtualPhone,
    is_signed,
)

# One client on the port of one phone: handshake, proof of the key, streams.

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


HOST = "127.0.0.1"
"""Only the loopback address, because the port runs commands."""
START_TIMEOUT_S = 180.0
"""Two hundred phones are 25,000 small files."""
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmSpec:
    """Which phones to create.

    Attributes:
        folder: parent of each phone's folder; it is kept at the end.
        profiles: names; phone number i gets the i-th, cyclically.
        seed: together with the phone's number it decides serial number and canned times.
        first_port: port of the first phone, the others follow; `None` lets the system choose.
        key_file: the public half of the adb key that the phones accept.
    """

    folder: Path
    count: int = 1
    mode: VirtualMode = VirtualMode.CANNED
    profiles: tuple[str, ...] = DEFAULT_PROFILES
    seed: int = 0
    first_port: int | None = None
    key_file: Path = field(default_factory=lambda: Path.home() / ".android/adbkey.pub")


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmedPhone:
    """One phone as clients see it; `address` is the argument of `adb connect`."""

    address: str
    serial: str
    profile: str
    mode: VirtualMode
    folder: Path


class _Port:
    """The listener of one phone and its clients."""

    def __init__(self, spec: PhoneSpec, parent: Path) -> None:
        self.phone = VirtualPhone(spec, parent, self._cut_all)
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, port: int) -> str:
        self._server = await asyncio.start_server(self._accept, HOST, port)
        host, bound = self._server.sockets[0].getsockname()
        return f"{host}:{bound}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.phone.clear(Fault.HANG)
        self._cut_all()
        await end_tasks(self._tasks)
        end_programs(self.phone)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.phone.is_away:
            writer.transport.abort()
            return
        connection = Connection(self.phone, reader, writer)
        self._connections.add(connection)
        task = asyncio.create_task(connection.serve())
        self._tasks.add(task)

        def forget(ended: asyncio.Task[None]) -> None:
            self._tasks.discard(ended)
            self._connections.discard(connection)

        task.add_done_callback(forget)

    def _cut_all(self) -> None:
        for connection in tuple(self._connections):
            connection.cut()


class VirtualFarm:
    """Runs phones in a separate thread; every public method may be called from any thread.

    with VirtualFarm(FarmSpec(folder=folder, count=2)) as farm:
        farm.phones[0].address
        farm.inject(0, Fault.HANG, duration_s=2.0)
    """

    def __init__(self, spec: FarmSpec) -> None:
        """Starts nothing; entering the context starts the phones."""
        self._spec = spec
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="virtual-phones")
        self._ports: list[_Port] = []
        self.phones: tuple[FarmedPhone, ...] = ()

    def __enter__(self) -> Self:
        """Starts all phones.

        Raises:
            PermanentError: an unknown profile, or a folder or port that cannot be used.
        """
        self._thread.start()
        try:
            self.phones = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(
                START_TIMEOUT_S
            )
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stops all phones and their commands; their folders stay."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(STOP_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def inject(self, phone: int, fault: Fault, duration_s: float | None = None) -> None:
        """Starts a fault on phone number `phone`; `Fault` explains `duration_s`."""
        self._call(self._ports[phone].phone.inject, fault, duration_s)

    def clear(self, phone: int, fault: Fault) -> None:
        """Ends a fault."""
        self._call(self._ports[phone].phone.clear, fault)

    def schedule(self, injections: Sequence[Injection]) -> None:
        """Starts a fault run now: each injection happens at its own time."""
        for injection in injections:
            phone = self._ports[injection.phone].phone
            self._loop.call_soon_threadsafe(
                self._loop.call_later,
                injection.after_s,
                phone.inject,
                injection.fault,
                injection.duration_s,
            )

    async def _start(self) -> tuple[FarmedPhone, ...]:
        return tuple([await self._start_phone(number) for number in range(self._spec.count)])

    async def _start_phone(self, number: int) -> FarmedPhone:
        spec = self._spec
        name = spec.profiles[number % len(spec.profiles)]
        phone_spec = PhoneSpec(
            name=name,
            profile=find_profile(name),
            mode=spec.mode,
            seed=spec.seed * 1_000_003 + number,
            key_file=spec.key_file,
        )
        wanted = 0 if spec.first_port is None else spec.first_port + number
        try:
            port = _Port(phone_spec, spec.folder)
            self._ports.append(port)
            address = await port.listen(wanted)
        except OSError as error:
            raise PermanentError(
                f"virtual phone {number + 1} cannot start: {error}",
                "choose another `port=` or `folder=`",
            ) from error
        return FarmedPhone(
            address=address,
            serial=port.phone.serial,
            profile=name,
            mode=spec.mode,
            folder=port.phone.paths.root,
        )

    async def _stop(self) -> None:
        for port in self._ports:
            await port.close()

    def _call(self, act: Callable[..., None], *arguments: object) -> None:
        """Runs a method of a phone in the loop's thread and waits for it."""

        async def run() -> None:
            act(*arguments)

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(STOP_TIMEOUT_S)

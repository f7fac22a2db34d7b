"""Several phones in one process; each has its own port."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from fleetrank.device_agents.contract.kind import VirtualMode
from fleetrank.device_agents.errors import PermanentError
from phone_farm.connection import Connection, end_tasks
from phone_farm.faults import Fault, Injection
from phone_farm.phone import PhoneSpec, VirtualPhone
from phone_farm.profile import DEFAULT_PROFILES, find_profile
from phone_farm.shell import end_programs

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

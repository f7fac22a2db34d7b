"""Commands on the phone: with packets and an exit code (shell v2), or as plain bytes (v1)."""

import asyncio
import os
import signal
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import IntEnum
from pathlib import Path

from phone_farm.faults import Fault
from phone_farm.paths import PathHider
from phone_farm.phone import VirtualPhone
from phone_farm.stream import Stream, StreamClosedError
from phone_farm.wire import MAX_PAYLOAD_BYTES

CHUNK_BYTES = 32 * 1024
MAX_OUTPUT_BYTES = 256 * 1024 * 1024
"""Limit for one command: more output is an endless loop. `cat` of a big artifact fits."""
DROP_AFTER_S = 0.05
"""Time after the start of a run at which the cable is pulled."""
POLL_S = 0.1
RUN_SIGNS = ("/fleetrank/tools/", "/fleetrank/artifacts/")
"""Both are part of the text of a command that runs a pushed tool on a pushed artifact."""

_HUNG_UP = 129
"""128 plus the number of SIGHUP; its client is gone, and no one reads it."""
_PACKET = struct.Struct("<BI")

Process = asyncio.subprocess.Process


class Packet(IntEnum):
    """Kinds of packets of shell v2. Source: AOSP adb `shell_protocol.h`."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    EXIT = 3
    CLOSE_STDIN = 4
    WINDOW_SIZE = 5


Write = Callable[[Packet, bytes], Awaitable[None]]
Feed = Callable[[Process], Awaitable[None]]


async def serve_packets(phone: VirtualPhone, command: str, stream: Stream) -> None:
    """Shell v2: stdin, stdout, stderr and the exit code, each in packets."""

    async def write(kind: Packet, data: bytes) -> None:
        await stream.write(_PACKET.pack(kind, len(data)) + data)

    async def feed(process: Process) -> None:
        while True:
            kind, size = _PACKET.unpack(await stream.read_exactly(_PACKET.size))
            if size > MAX_PAYLOAD_BYTES:
                raise StreamClosedError  # clients do not send this; it would fill the memory
            data = await stream.read_exactly(size)
            if kind == Packet.STDIN:
                await _write_stdin(process, data)
            elif kind == Packet.CLOSE_STDIN and process.stdin is not None:
                process.stdin.close()

    exit_code = await _run(phone, command, stream, feed=feed, write=write)
    await write(Packet.EXIT, bytes([exit_code]))


async def serve_plain(phone: VirtualPhone, command: str, stream: Stream) -> None:
    """Shell v1 and exec: bytes in, bytes out; standard error is mixed in; no exit code."""

    async def write(kind: Packet, data: bytes) -> None:
        del kind
        await stream.write(data)

    async def feed(process: Process) -> None:
        while True:
            await _write_stdin(process, await stream.read())

    await _run(phone, command, stream, feed=feed, write=write)


async def _run(
    phone: VirtualPhone, command: str, stream: Stream, *, feed: Feed, write: Write
) -> int:
    """Runs one command to its end; afterwards its process group is always gone.

    A process in the background ends with the command, as on a phone without nohup.
    """
    is_run = all(sign in command for sign in RUN_SIGNS)
    if is_run:
        phone.run_begins()
    try:
        return await _run_process(phone, command, stream, feed=feed, write=write)
    finally:
        if is_run:
            phone.run_ends()


async def _run_process(
    phone: VirtualPhone, command: str, stream: Stream, *, feed: Feed, write: Write
) -> int:
    process = await _start(phone, command)
    if all(sign in command for sign in RUN_SIGNS) and phone.take(Fault.DROP_RUN):
        await _drop(process, stream)
    copying = asyncio.gather(
        _copy(phone, process.stdout, Packet.STDOUT, write),
        _copy(phone, process.stderr, Packet.STDERR, write),
    )
    waiting = asyncio.create_task(process.wait())
    closing = asyncio.create_task(stream.closed.wait())
    exiting = asyncio.create_task(_wait_for_exit(process))
    others = [asyncio.create_task(_feed(process, feed)), closing, exiting]
    try:
        await asyncio.wait({waiting, closing, exiting}, return_when=asyncio.FIRST_COMPLETED)
        if closing.done() and phone.has_fault(Fault.HANGUP_ONLY):
            _hang_up(process)
            return _HUNG_UP
        _kill_group(process)
        await copying
        return _exit_code(await waiting)
    finally:
        if not phone.has_fault(Fault.HANGUP_ONLY):
            _kill_group(process)
        copying.cancel()
        for task in others:
            task.cancel()
        await asyncio.gather(waiting, copying, *others, return_exceptions=True)


async def _wait_for_exit(process: Process) -> None:
    """Waits for the end of a command whose background processes hold its pipes.

    `Process.wait` waits for the pipes as well.
    """
    while process.returncode is None:
        await asyncio.sleep(POLL_S)


async def _start(phone: VirtualPhone, command: str) -> Process:
    phone.tell_time()
    # A shell can become its last command; with one more it stays, as the shells of phones do.
    last = "\nexit $?" if phone.has_fault(Fault.HANGUP_ONLY) else ""
    return await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        f"{phone.paths.to_host(command)}{last}".encode("utf-8", errors="surrogateescape"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=phone.environment(),
        cwd=phone.paths.root,
        start_new_session=True,
    )


async def _copy(
    phone: VirtualPhone, source: asyncio.StreamReader | None, kind: Packet, write: Write
) -> None:
    """Forwards output; the folder of the phone is removed from every path."""
    if source is None:
        return
    hider = PathHider(phone.paths.root)
    copied_bytes = 0
    while chunk := await source.read(CHUNK_BYTES):
        copied_bytes += len(chunk)
        if copied_bytes > MAX_OUTPUT_BYTES:
            raise StreamClosedError
        # Read to the end even without a reader: asyncio closes the pipe only then.
        with suppress(StreamClosedError):
            if shown := hider.hide(chunk):
                await write(kind, shown)
    with suppress(StreamClosedError):
        if rest := hider.rest():
            await write(kind, rest)


async def _feed(process: Process, feed: Feed) -> None:
    with suppress(StreamClosedError):
        await feed(process)


async def _write_stdin(process: Process, data: bytes) -> None:
    """Writes to a command, which may have stopped reading."""
    if process.stdin is None or process.stdin.is_closing():
        return
    process.stdin.write(data)
    with suppress(ConnectionError):
        await process.stdin.drain()


async def _drop(process: Process, stream: Stream) -> None:
    """Cuts the connection during a run whose output is not complete."""
    await asyncio.sleep(DROP_AFTER_S)
    _kill_group(process)
    await process.wait()
    stream.cut()
    raise StreamClosedError


def _kill_group(process: Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _hang_up(process: Process) -> None:
    """Ends the shell alone, and closes the pipes that its program may still write to.

    Source: adbd's shell_service.cpp, `kill(pid_, SIGHUP)`.
    """
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGHUP)
    # asyncio has no public way to close the pipes of a process that goes on.
    process._transport.close()  # type: ignore[attr-defined]


def _exit_code(status: int) -> int:
    """The shell's exit code: 128 plus the signal's number if a signal ended the command."""
    return 128 - status if status < 0 else status


def end_programs(phone: VirtualPhone) -> None:
    """Ends programs that a closed connection left: no phone is there for them any more."""
    mark = f"FLEETRANK_PHONE={phone.paths.root}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)

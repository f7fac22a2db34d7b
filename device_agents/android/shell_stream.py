"""Reads what a script on a phone wrote, and how it ended.

Source: `shell_protocol.h` of packages/modules/adb: a packet is one byte of kind, four of length,
    little endian, and the data.
"""

import re
from dataclasses import dataclass

from device_agents.android.smart_socket import CHUNK_BYTES, LOST_REMEDY, SmartSocket
from device_agents.errors import BadOutputError, TransientError

MAX_OUTPUT_BYTES = 16 * 1024 * 1024
"""A thousand times what the wordiest runner prints; more than this is no answer."""
_STDOUT, _STDERR, _EXIT = 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellResult:
    """How a script ended and what it wrote.

    Attributes:
        exit_code: 128 and more for a program that a signal ended.
        stderr: empty on a phone without shell v2, which mixes it into `stdout`.
    """

    exit_code: int
    stdout: str
    stderr: str


def read_packets(connection: SmartSocket) -> ShellResult:
    """Reads a shell v2 stream up to its exit packet; a stream without one raises."""
    streams = {_STDOUT: bytearray(), _STDERR: bytearray()}
    while True:
        header = connection.receive_exactly(5)
        kind, length = header[0], int.from_bytes(header[1:], "little")
        if length + sum(map(len, streams.values())) > MAX_OUTPUT_BYTES:
            raise _too_much()
        data = connection.receive_exactly(length)
        if kind == _EXIT and data:
            return ShellResult(
                exit_code=data[0],
                stdout=streams[_STDOUT].decode("utf-8", errors="replace"),
                stderr=streams[_STDERR].decode("utf-8", errors="replace"),
            )
        if kind in streams:
            streams[kind] += data


def read_marked(connection: SmartSocket, mark: str) -> ShellResult:
    """Reads a plain stream, whose last line must be the mark and the exit code."""
    received = bytearray()
    while chunk := connection.receive(CHUNK_BYTES):
        received += chunk
        if len(received) > MAX_OUTPUT_BYTES:
            raise _too_much()
    return split_marked(received.decode("utf-8", errors="replace"), mark)


def split_marked(text: str, mark: str) -> ShellResult:
    """Splits the output of a script from the mark and exit code behind it.

    The terminal of a phone without shell v2 ends lines with a carriage return too.

    Raises:
        TransientError: there is no mark, so the stream ended before the script did.
    """
    plain = re.sub(r"\r+\n", "\n", text)
    match = re.search(rf"\n{re.escape(mark)} (\d{{1,3}})\n?\Z", plain, re.ASCII)
    if match is None:
        raise TransientError("the connection to the phone ended in the middle", LOST_REMEDY)
    return ShellResult(exit_code=int(match.group(1)), stdout=plain[: match.start()], stderr="")


def _too_much() -> BadOutputError:
    return BadOutputError(
        f"the phone wrote more than {MAX_OUTPUT_BYTES} bytes",
        "look for a tool that prints without end",
    )

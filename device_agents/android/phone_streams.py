"""What flows through an open connection to a phone: the output of a script."""

import re
from dataclasses import dataclass

from fleetrank.device_agents.android.smart_socket import CHUNK_BYTES, LOST_REMEDY, SmartSocket
from fleetrank.device_agents.device_output import cut_lines, decode_output, refused
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

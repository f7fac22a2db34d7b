"""Text from a device, its driver or a program on it: limited in length, and parsed line by line.

No time limit applies to parsing, so the text itself limits the work. At most a fixed number of
bytes is read from one command, and a parser gets lines of at most 4096 characters.
"""

import re

from fleetrank.device_agents.errors import BadOutputError

MAX_PROBE_BYTES = 64 * 1024
"""For one command that reads facts or conditions: five times the longest output seen on a phone."""
MAX_PROGRAM_BYTES = 16 * 1024 * 1024
"""For one run of a program: ten thousand samples, each on a line of the log, take 1.2 MB."""
MAX_LINE_CHARACTERS = 4096
"""The longest line that is parsed: fifty terminal lines; no line that we need has ten."""
CUT = " [line cut]"
"""Marks a line of which only the first `MAX_LINE_CHARACTERS` were kept."""
MAX_DIGITS = 18
"""64 bits hold this; no device counter needs more."""
_MAX_NAME_CHARACTERS = 256
"""NVML's names have at most 96 characters; the path of a program may be longer."""
_MAX_QUOTED = 200
"""Most characters of a read text that a message quotes."""

_LONG_LINE = re.compile(rf"^([^\n]{{{MAX_LINE_CHARACTERS}}})[^\n]++", re.MULTILINE)
_REMEDY = "check the device's output; its program may be defective, or of another version"


def decode_output(data: bytes | bytearray) -> str:
    """Decodes a command's output; a line that is too long is cut and marked with `CUT`."""
    return cut_lines(data.decode("utf-8", errors="replace"))


def cut_lines(text: str) -> str:
    """Cuts long lines; the mark prevents `lines_of` from reading half a figure."""
    return _LONG_LINE.sub(rf"\1{CUT}", text)


def without_long_lines(text: str) -> str:
    """Replaces each long line with `CUT`, so that no regular expression reads half a figure."""
    return _LONG_LINE.sub(CUT, text)


def lines_of(text: str) -> list[str]:
    """The lines a parser may read, without line ends; too long or cut lines are skipped."""
    lines = text.replace("\r\n", "\n").split("\n")
    return [line for line in lines if len(line) <= MAX_LINE_CHARACTERS]


def value_of(text: str, name: str, separator: str = ":") -> str | None:
    """The text after `name:` in the first line that has it; `None` if no line has it."""
    for line in lines_of(text):
        if name in line:
            found, mark, value = line.partition(separator)
            if mark and found.strip() == name:
                return value.strip()
    return None


def whole_number(text: str) -> int | None:
    """The number that the text consists of; `None` for any other text.

    Raises:
        BadOutputError: it has more digits than any device counter.
    """
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        return None
    if len(digits) > MAX_DIGITS:
        raise refused(f"a number has {len(digits)} digits", text)
    return int(text)


def bounded_name(text: str) -> str:
    """A name from a driver, cut to a length that fits a message and a column."""
    return text[:_MAX_NAME_CHARACTERS]


def refused(why: str, read: str | bytes) -> BadOutputError:
    """The error for an impossible output of a device; the message quotes what was read."""
    shown = read[:_MAX_QUOTED]
    rest = "" if len(read) <= _MAX_QUOTED else f" and {len(read) - _MAX_QUOTED} more"
    return BadOutputError(f"{why}; what was read is {shown!r}{rest}", _REMEDY)

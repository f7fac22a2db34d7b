"""Text that a device, its driver or a program on it wrote: bounded, and parsed line by line.

No time limit holds while a text is parsed, so the text itself bounds the work: at most so many
bytes are read of one command, and a parser sees one line of at most 4096 characters at a time.
"""

import re

from fleetrank.device_agents.errors import BadOutputError

MAX_PROBE_BYTES = 64 * 1024
"""Of one command that asks for facts or conditions: five times what the wordiest phone writes."""
MAX_TOOL_BYTES = 16 * 1024 * 1024
"""Of one run of a program: ten thousand samples, each on a line of the log, take 1.2 MB."""
MAX_LINE_CHARACTERS = 4096
"""The longest line that is parsed: fifty lines of a terminal; none that is needed has ten."""
CUT = " [line cut]"
"""Ends a line of which only the first `MAX_LINE_CHARACTERS` were kept."""
MAX_DIGITS = 18
"""What fits 64 bits; nothing that a device counts needs more."""
_MAX_NAME_CHARACTERS = 256
"""NVML's names have at most 96; the path of a program may be longer."""
_MAX_QUOTED = 200
"""Of what was read, in a message."""

_LONG_LINE = re.compile(rf"^([^\n]{{{MAX_LINE_CHARACTERS}}})[^\n]++", re.MULTILINE)
_REMEDY = "look at what the device prints; its program may be broken, or of another version"


def decode_output(data: bytes | bytearray) -> str:
    """The text of a command's output; a line that is too long is cut and marked with `CUT`."""
    return cut_lines(data.decode("utf-8", errors="replace"))


def cut_lines(text: str) -> str:
    """The text with its long lines cut; the mark keeps `lines_of` from reading half a figure."""
    return _LONG_LINE.sub(rf"\1{CUT}", text)


def without_long_lines(text: str) -> str:
    """The text with `CUT` in place of each long line, so that no expression reads half a figure."""
    return _LONG_LINE.sub(CUT, text)


def lines_of(text: str) -> list[str]:
    """The lines a parser may look at, without their ends; lines too long or cut are left out."""
    lines = text.replace("\r\n", "\n").split("\n")
    return [line for line in lines if len(line) <= MAX_LINE_CHARACTERS]


def value_of(text: str, name: str, separator: str = ":") -> str | None:
    """What stands behind `name:` in the first line that has it; `None` without such a line."""
    for line in lines_of(text):
        if name in line:
            found, mark, value = line.partition(separator)
            if mark and found.strip() == name:
                return value.strip()
    return None


def whole_number(text: str) -> int | None:
    """The number a text consists of; `None` when it is another text.

    Raises:
        BadOutputError: it has more digits than anything a device counts.
    """
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        return None
    if len(digits) > MAX_DIGITS:
        raise refused(f"a number has {len(digits)} digits", text)
    return int(text)


def bounded_name(text: str) -> str:
    """A name as a driver gives it, cut to what a message and a column can show."""
    return text[:_MAX_NAME_CHARACTERS]


def refused(why: str, read: str | bytes) -> BadOutputError:
    """The error for what a device wrote and cannot mean; the message holds what was read."""
    shown = read[:_MAX_QUOTED]
    rest = "" if len(read) <= _MAX_QUOTED else f" and {len(read) - _MAX_QUOTED} more"
    return BadOutputError(f"{why}; what was read is {shown!r}{rest}", _REMEDY)

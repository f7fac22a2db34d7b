"""Text from a device, its driver or a program on it: limited in length, with values in range.

No time limit applies to parsing, so the text itself limits the work. At most a fixed number of
bytes is read from one command, and a parser gets lines of at most 4096 characters. The ranges of
all readings that a device may report are here, in one place.

A value outside its range raises `bad_output` with what was read. It is an error of the device, the
tool or the parser, and would not be visible in a table.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

from fleetrank.device_agents.contract.measurement import ToolSummary
from fleetrank.device_agents.errors import BadOutputError
from fleetrank.foundation.vocabulary import Statistic

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

_LONG_LINE = re.compile(rf"^([^\n]{{{MAX_LINE_CHARACTERS}}})[^\n]+", re.MULTILINE)
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


_THROTTLED = re.compile(r"throttled=0x([0-9a-fA-F]{1,8})", re.ASCII)
_REASONS = ("under_voltage", "frequency_capped", "throttled", "soft_temp_limit")
_SINCE_BOOT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """What limits a Raspberry Pi now, and what limited it at some time since the boot."""

    now: frozenset[str]
    since_boot: frozenset[str]


def parse_throttled(text: str) -> Throttled | None:
    """Reads `throttled=0x50005`; `None` if the text is not that.

    The board itself and its host both read it.
    Source: raspberrypi/documentation, `vcgencmd get_throttled`: bits 0 to 3 hold now, bits 16 to
        19 say the same since the boot: under-voltage, clock limited, throttled, soft temperature
        limit.
    """
    match = _THROTTLED.fullmatch(text.strip())
    if match is None:
        return None
    bits = int(match[1], 16)
    return Throttled(
        now=frozenset(name for bit, name in enumerate(_REASONS) if bits >> bit & 1),
        since_boot=frozenset(
            name for bit, name in enumerate(_REASONS, _SINCE_BOOT) if bits >> bit & 1
        ),
    )


MAX_CLOCK_MHZ = 20_000.0
"""Twice the record of processors cooled with liquid helium."""
MAX_MEAN_RATIO = 2.0
"""For two means of the same runs. Seen: 1.0004, when a tool profiles some of the runs."""
_SLACK = 0.01
"""Tools print six digits, and 32-bit floats have seven."""
_SLACK_NS = 1000
"""Tools count whole microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The possible values of a reading, both ends included."""

    what: str
    low: float
    high: float
    unit: str = ""

    def holds(self, value: float) -> bool:
        """Whether the value is possible; NaN is not."""
        return self.low <= value <= self.high

    def require(self, value: float, read: str) -> None:
        """Returns if the value is possible.

        Raises:
            BadOutputError: it is not possible; the message quotes what was read.
        """
        if not self.holds(value):
            raise refused(
                f"{self.what} is {value:g}{self.unit}, "
                f"which is not within {self.low:g} and {self.high:g}",
                read,
            )


CLOCK_MHZ = Range(what="a clock", low=0.0, high=MAX_CLOCK_MHZ, unit=" MHz")
"""The kernel reports 0 for an offline core."""
BATTERY_PERCENT = Range(what="the battery's charge", low=0.0, high=100.0, unit=" %")
BATTERY_SCALE = Range(what="the battery's scale", low=0.0, high=1e6)
"""100 on every phone seen; 0 says nothing."""
TEMP_C = Range(what="a temperature", low=-40.0, high=150.0, unit=" C")
"""Silicon is rated from -40 to 125 degrees and shuts down below 150; batteries earlier."""
THERMAL_STATUS = Range(what="the thermal status", low=0, high=6)
"""Source: `Temperature.java` of frameworks/base: none to shutdown."""
MEMORY_BYTES = Range(what="the memory", low=0, high=2**50, unit=" bytes")
"""A pebibyte: a thousand times the largest server."""
STORAGE_BYTES = Range(what="the free space", low=0, high=2**60, unit=" bytes")
"""A thousand pebibytes: an emulated phone reports the file system of its host."""
LOAD = Range(what="the load", low=0.0, high=1e6)
"""Linux has at most four million processes."""
UPTIME_S = Range(what="the time since the start", low=0.0, high=1e9, unit=" s")
"""Thirty years."""


def degrees_c(reading: float) -> float | None:
    """A temperature as the kernel shows it, in thousandths; `None` if no chip has it.

    Kernels of some boards give whole degrees: 65 is not 0.065 C.
    """
    found = reading if abs(reading) <= TEMP_C.high else reading / 1000
    return found if TEMP_C.holds(found) else None


def refuse_impossible(
    summary: ToolSummary, *, min_ns: int | None = None, max_ns: int | None = None
) -> None:
    """Returns if the statistics are possible for real runs.

    Args:
        summary: statistics of latencies, which are never negative.
        min_ns: of the same runs.
        max_ns: of the same runs.

    Raises:
        BadOutputError: no runs have such statistics; the message quotes them.

    Source: among non-negative values, at most a share s is above mean / s (Markov's inequality),
        and the standard deviation of n values is at most sqrt(n - 1) times their mean.
    """
    mean_ns = summary.mean_ns
    # Some builds print no median but the mean, which may be above a percentile.
    median_ns = summary.latency_ns if summary.statistic is Statistic.MEDIAN else None
    quantiles = (
        ("the median", median_ns, 0.50),
        ("the 90th percentile", summary.p90_ns, 0.10),
        ("the 95th percentile", summary.p95_ns, 0.05),
        ("the 99th percentile", summary.p99_ns, 0.01),
    )
    lowest, highest = ("the minimum", min_ns), ("the maximum", max_ns)
    _refuse_falling([lowest, *((name, ns) for name, ns, _ in quantiles), highest], summary)
    if mean_ns is None:
        return
    _refuse_falling([lowest, ("the mean", mean_ns), highest], summary, slack=_SLACK)
    for name, ns, share in quantiles:
        if ns is not None and _is_above(ns * share, mean_ns):
            raise refused(f"{name} is more than {1 / share:g} times the mean", repr(summary))
    std_ns, count = summary.std_ns, summary.count
    if None not in (std_ns, count) and _is_above(std_ns or 0, mean_ns * sqrt(count or 0)):
        raise refused("the standard deviation is too large for the mean", repr(summary))


def refuse_unlike_means(one_ns: int, other_ns: int) -> None:
    """Returns if two means of the same runs agree.

    Raises:
        BadOutputError: one has another unit, or is of other runs.
    """
    if max(one_ns, other_ns) > MAX_MEAN_RATIO * min(one_ns, other_ns) + _SLACK_NS:
        raise refused("the output has two means that disagree", f"{one_ns} ns and {other_ns} ns")


def refuse_unlike_counts(*counts: int) -> None:
    """Returns if all counts of the same runs are equal; raises `BadOutputError` otherwise."""
    if len(set(counts)) > 1:
        raise refused("the output has counts of runs that disagree", ", ".join(map(str, counts)))


def _refuse_falling(
    figures: Sequence[tuple[str, int | None]], summary: ToolSummary, slack: float = 0.0
) -> None:
    known = [(name, ns) for name, ns in figures if ns is not None]
    for (lower, low_ns), (upper, high_ns) in pairwise(known):
        if low_ns > high_ns and (slack == 0 or _is_above(low_ns, high_ns)):
            raise refused(
                f"{lower} is {low_ns} ns and {upper} {high_ns} ns, which is less", repr(summary)
            )


def _is_above(ns: float, limit_ns: float) -> bool:
    return ns > limit_ns * (1 + _SLACK) + _SLACK_NS

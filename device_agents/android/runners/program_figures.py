"""Checks figures in a program's text and converts them to the project's units."""

import math
import re
from collections.abc import Mapping

from fleetrank.device_agents.errors import BadOutputError

NUMBER = r"-?[0-9]++(?:\.[0-9]*+)?+(?:[eE][-+]?[0-9]{1,4}+)?+"
"""A number as C++ prints it, also as `1.04176e+06`. The pattern never backtracks."""

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

_DAY_NS = 86_400 * NS_PER_S
"""No repeat lasts a day; a longer time has another unit or is not a valid number."""

_FIELD = re.compile(rf"(?<![A-Za-z0-9_])([A-Za-z0-9_]++)=({NUMBER})", re.ASCII)


def to_ns(value: str | float, ns_per_unit: int, what: str) -> int:
    """A time in nanoseconds.

    Raises:
        BadOutputError: negative, not finite, or longer than a day.
    """
    ns = float(value) * ns_per_unit
    if not (math.isfinite(ns) and 0 <= ns < _DAY_NS):
        raise not_a_result(f"{what} is {str(value)[:40]}")
    return round(ns)


def to_latency_ns(value: str | float, ns_per_unit: int, what: str) -> int:
    """A positive time in nanoseconds: an inference of 0 ns means that the figure was lost.

    Raises:
        BadOutputError: the same as `to_ns`, or zero.
    """
    ns = to_ns(value, ns_per_unit, what)
    if ns == 0:
        raise not_a_result(f"{what} is zero")
    return ns


def named_fields(text: str) -> Mapping[str, str]:
    """`a=1 b=2.5` as a mapping; fields without a number are skipped."""
    return dict(_FIELD.findall(text))


def not_a_result(why: str) -> BadOutputError:
    """The error for a program that ended normally but whose output is not a plausible result."""
    return BadOutputError(
        f"the output is not a result: {why}",
        "read the raw log: another version of the program may print another format",
    )

"""Turns a value into text for people, in one way for terminal, pages, Markdown and LaTeX.

JSON, CSV and Parquet do not use this module: they keep every digit.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from fleetrank.foundation.visible_text import visible_line

MISSING = "-"
"""A missing value. It is ASCII, so every terminal can show it."""
_DIGITS = 4
"""Significant digits: more than the noise of a measurement leaves. Machine formats have all."""
_MOST = 1e15
"""Up to this limit a float represents every whole number, so all integer digits are shown."""
_LEAST = 1e-4
_WORDS: Mapping[bool | None, str] = MappingProxyType({None: MISSING, True: "yes", False: "no"})
UNITS: Mapping[str, str] = MappingProxyType(
    {
        "ns": "ns", "us": "µs", "ms": "ms", "s": "s", "bytes": "bytes", "mib": "MiB", "mb": "MB",
        "mj": "mJ", "mhz": "MHz", "mw": "mW", "c": "°C", "percent": "%", "utc": "UTC",
    }
)  # fmt: skip
"""The last part of a column's name to the unit in its heading."""


def value_text(value: object, *, is_grouped: bool = False) -> str:
    """One value on one line.

    Args:
        value: `None` is missing; an empty list too.
        is_grouped: a comma between thousands. Pages have it; text that a script may cut has not.
    """
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, float):
        return number_text(value, is_grouped=is_grouped)
    if isinstance(value, int):
        return f"{value:,}" if is_grouped else str(value)
    if isinstance(value, list | tuple):
        parts = [value_text(part, is_grouped=is_grouped) for part in value]
        return ", ".join(parts) or MISSING
    if isinstance(value, datetime):
        return time_text(value)
    # A name from a file must not start a new line.
    return visible_line(str(value))


def number_text(value: float, *, is_grouped: bool = False) -> str:
    """Four significant digits and all integer digits; an exponent only for extreme values.

    Zeros at the end are kept, so that the numbers of a column align.
    """
    if value == 0 or not _LEAST <= abs(value) < _MOST:
        return f"{value:.{_DIGITS}g}"
    decimals = max(0, _DIGITS - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}" if is_grouped else f"{value:.{decimals}f}"


def time_text(value: datetime) -> str:
    """A moment to the second, in UTC; a time without a zone is UTC already."""
    moment = value.astimezone(UTC) if value.tzinfo else value
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def heading(name: str) -> str:
    """`latency_p50_ms` as `latency p50, ms`; `items_per_s` as `items per s`."""
    words = name.removeprefix("n_").removesuffix("_key").split("_")
    is_unit = len(words) > 1 and words[-2] != "per"
    unit = UNITS.get(words[-1]) if is_unit else None
    return f"{' '.join(words[:-1])}, {unit}" if unit else " ".join(words)

"""Reads a Raspberry Pi's throttle bits; pure.

Source: raspberrypi/documentation, `vcgencmd get_throttled`: bits 0 to 3 hold now, bits 16 to 19 say
    the same since the boot: under-voltage, clock limited, throttled, soft temperature limit.
"""

import re
from dataclasses import dataclass

_TEXT = re.compile(r"throttled=0x([0-9a-fA-F]{1,8})", re.ASCII)
_NAMES = ("under_voltage", "frequency_capped", "throttled", "soft_temp_limit")
_SINCE_BOOT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """The reasons that hold now, and those that held at some time since the boot."""

    now: frozenset[str]
    since_boot: frozenset[str]


def parse_throttled(text: str) -> Throttled | None:
    """Reads `throttled=0x50005`; `None` if the text is not that."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        return None
    bits = int(match[1], 16)
    return Throttled(
        now=frozenset(name for bit, name in enumerate(_NAMES) if bits >> bit & 1),
        since_boot=frozenset(
            name for bit, name in enumerate(_NAMES, _SINCE_BOOT) if bits >> bit & 1
        ),
    )

"""Cores of a phone and their clocks.

Source: Documentation/admin-guide/pm/cpufreq.rst of the Linux kernel: clocks are in kHz,
`cpuinfo_max_freq` is the hardware's limit, `scaling_max_freq` the limit allowed now.
"""

import re
from dataclasses import dataclass

from fleetrank.device_agents.device_output import CLOCK_MHZ, lines_of, whole_number

CORES_SCRIPT = """
section cores
for core in /sys/devices/system/cpu/cpu[0-9]*; do
  line=${core##*/cpu}
  for fact in cpuinfo_max_freq scaling_max_freq scaling_cur_freq scaling_governor; do
    value=
    [ -r "$core/cpufreq/$fact" ] && read -r value < "$core/cpufreq/$fact"
    line="$line ${value:--}"
  done
  echo "$line"
done 2>/dev/null
"""
"""One line per core: number, highest clock, highest allowed, current, governor; `-` if unknown."""
_LINE = re.compile(r"(\d{1,4}) (\S+) (\S+) (\S+) (\S+)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """One core; clocks in kHz as the kernel gives them, `None` if unknown.

    Attributes:
        max_khz: the hardware's limit.
        cap_khz: the limit allowed now: thermal engines and battery savers lower it.
        now_khz: the current clock; an idle core runs at its lowest clock.
    """

    number: int
    max_khz: int | None = None
    cap_khz: int | None = None
    now_khz: int | None = None
    governor: str | None = None


def parse_cores(text: str) -> tuple[Core, ...]:
    """Reads the output of `CORES_SCRIPT`, sorted by core number; other lines are skipped.

    Raises:
        BadOutputError: a clock that no processor has.
    """
    matches = (_LINE.fullmatch(line.strip()) for line in lines_of(text) if line)
    cores = {
        int(match[1]): Core(
            number=int(match[1]),
            max_khz=_khz(match[2]),
            cap_khz=_khz(match[3]),
            now_khz=_khz(match[4]),
            governor=None if match[5] == "-" else match[5],
        )
        for match in matches
        if match is not None
    }
    return tuple(cores[number] for number in sorted(cores))


def _khz(text: str) -> int | None:
    """Parses a clock; an offline core shows 0, which is not a clock."""
    khz = whole_number(text)
    if khz is not None:
        CLOCK_MHZ.require(khz / 1000, f"{text} kHz")
    return khz or None

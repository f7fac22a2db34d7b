"""A GPU's state in the words of `Conditions`: pure."""

from dataclasses import replace

from fleetrank.device_agents.contract.measurement import Conditions
from fleetrank.device_agents.cuda.library import Reading
from fleetrank.device_agents.timing.flags import NOTHING_SLOWS

_SLOWING = {
    0x04: "power_cap",
    0x08: "hw_slowdown",
    0x20: "heat",
    0x40: "hw_heat",
    0x80: "power_brake",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Bits that mean slower than the clocks asked for; idle, chosen clocks and sync boost do not.

Source: NVML 13, nvmlClocksEventReasons.
"""


def throttle_reasons(bits: int | None) -> str | None:
    """Names of what slows the GPU down, joined by commas; `none` when nothing does."""
    if bits is None:
        return None
    return ",".join(name for bit, name in _SLOWING.items() if bits & bit) or NOTHING_SLOWS


def with_gpu(host: Conditions, reading: Reading, n_others: int | None) -> Conditions:
    """The host's conditions with clock and temperature of the GPU instead of the processor's."""
    return replace(
        host,
        clock_mhz=_as_float(reading.sm_clock_mhz),
        clock_max_mhz=None,
        governor=None,
        temp_c=_as_float(reading.temp_c),
        memory_clock_mhz=_as_float(reading.memory_clock_mhz),
        power_mw=_as_float(reading.power_mw),
        throttle_reasons=throttle_reasons(reading.event_reasons),
        throttled_ns=reading.throttled_ns,
        other_processes=n_others,
    )


def _as_float(value: int | None) -> float | None:
    return None if value is None else float(value)

"""Judges a board: is it ready for a repeat, and what slowed it during the repeat; pure."""

from collections.abc import Sequence
from dataclasses import replace

from fleetrank.device_agents.board.options import BoardOptions
from fleetrank.device_agents.board.state.board_text import BoardState
from fleetrank.device_agents.board.state.throttle_text import Throttled
from fleetrank.device_agents.contract.measurement import Conditions, Measurement
from fleetrank.device_agents.errors import (
    AgentError,
    NotFitError,
    UnusableDeviceError,
)
from fleetrank.device_agents.timing.flags import NOTHING_SLOWS
from fleetrank.foundation.vocabulary import Flag


def why_unfit(state: BoardState, options: BoardOptions) -> AgentError | None:
    """Why no repeat may start now; `None` if one may. An unknown value has no influence."""
    if None not in (options.power_mode, state.power_mode) and (
        state.power_mode != options.power_mode
    ):
        return UnusableDeviceError(
            f"the board's power mode is {state.power_mode}, and was {options.power_mode} when it "
            "was registered",
            "set the mode with `sudo nvpmodel -m NUMBER`, or register the board again",
        )
    if state.throttled is not None and state.throttled.now:
        return NotFitError(
            f"the board's firmware limits it now: {_words(state.throttled.now)}",
            "use the maker's power supply for under_voltage; let it cool down for the others",
        )
    if state.temp_c is not None and state.temp_c > options.max_temp_c:
        return NotFitError(
            f"the board is at {state.temp_c:.1f} C, above {options.max_temp_c:g} C",
            "let it cool down, add a fan, or raise its option max_temp_c",
        )
    share = cap_share(state.caps_mhz, options.registered_caps_mhz)
    if share is not None and share < options.min_cap_share:
        return NotFitError(
            f"the board's clocks are limited to {share:.0%} of those at its registration",
            "let it cool down; if its settings were changed, register it again",
        )
    return None


def cap_share(caps: Sequence[float], registered: Sequence[float]) -> float | None:
    """The lowest share of a registered cap that is allowed now; `None` if they do not match."""
    if not caps or len(caps) != len(registered):
        return None
    return min(cap / before for cap, before in zip(caps, registered, strict=True))


def slowed_by(
    before: BoardState, polled: Sequence[Throttled], after: BoardState
) -> tuple[str, ...] | None:
    """The reasons that slowed the board between two states; `None` if it reports none at all.

    A bit `since boot` that was already set before proves nothing; a new one was set meanwhile.
    """
    states = [one.throttled for one in (before, after) if one.throttled is not None]
    reasons = {name for one in (*states, *polled) for name in one.now}
    if before.throttled is not None and after.throttled is not None:
        reasons |= after.throttled.since_boot - before.throttled.since_boot
    if (share := cap_share(after.caps_mhz, before.caps_mhz)) is not None and share < 1:
        reasons.add("clock_cap")
    counts = dict(before.over_currents)
    if any(count > counts.get(name, count) for name, count in after.over_currents):
        reasons.add("over_current")
    is_known = bool(states or after.over_currents or after.caps_mhz)
    return tuple(sorted(reasons)) if is_known else None


def with_state(
    measurement: Measurement, before: BoardState, polled: Sequence[Throttled], after: BoardState
) -> Measurement:
    """The measurement with the board's own readings, and the flag that follows from them."""
    reasons = slowed_by(before, polled, after)
    first = _reasons(before.throttled)
    slowed = None if reasons is None else (",".join(reasons) or NOTHING_SLOWS)
    flags = {*measurement.flags, *((Flag.THROTTLED,) if reasons else ())}
    return replace(
        measurement,
        conditions_before=_with(measurement.conditions_before, before, first),
        conditions_after=_with(measurement.conditions_after, after, slowed),
        flags=tuple(flag for flag in Flag if flag in flags),
    )


def _with(found: Conditions | None, state: BoardState, reasons: str | None) -> Conditions | None:
    if found is None:
        return None
    real_mhz, caps = state.arm_clock_mhz, state.caps_mhz
    return replace(
        found,
        temp_c=max((c for c in (found.temp_c, state.temp_c) if c is not None), default=None),
        # The kernel of a Raspberry Pi shows the clock that it asked for.
        clock_mhz=found.clock_mhz if real_mhz is None else real_mhz,
        clock_cap_mhz=max(caps, default=None),
        throttle_reasons=reasons,
    )


def _reasons(throttled: Throttled | None) -> str | None:
    if throttled is None:
        return None
    return ",".join(sorted(throttled.now)) or NOTHING_SLOWS


def _words(reasons: frozenset[str]) -> str:
    return ", ".join(sorted(reasons))

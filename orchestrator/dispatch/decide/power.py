"""When a device that is lost again and again is switched off and on; pure functions."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.dispatch.decide.lane import Lane
from fleetrank.orchestrator.identity import DevicePlace

_LOSSES = 2
"""In a row: the first one can be a cable or a moment of the network."""
MOST_CYCLES = 2
"""In one run of a sweep: a device that this does not help is broken."""


def is_lost(failure: Failure) -> bool:
    """Whether a device did not answer; one that another user has, or that may come, is not lost."""
    return failure.kind is ErrorKind.DEVICE_LOST and failure.is_transient and failure.wait is None


def units_of(places: Mapping[str, DevicePlace]) -> dict[str, tuple[str, ...]]:
    """The devices that lose power together, by each device that can be switched."""
    tied: dict[object, list[str]] = defaultdict(list)
    for name, place in places.items():
        for tie in place.ties:
            tied[tie].append(name)
    return {
        name: tuple(dict.fromkeys([name, *(one for tie in place.ties for one in tied[tie])]))
        for name, place in places.items()
        if place.has_power
    }


def wants_cycle(lane: Lane) -> bool:
    """Whether a device that can be switched is switched as soon as nothing runs on its unit."""
    is_out = lane.is_given_up or lane.awaited_until_s is not None or not lane.has_pending
    return not is_out and lane.n_lost_in_a_row >= _LOSSES and lane.n_cycles < MOST_CYCLES


def due_cycles(
    lanes: Mapping[str, Lane], units: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, list[Lane]]]:
    """The devices to switch now, each with the lanes of its unit, on which nothing runs."""
    for device, names in units.items():
        unit = [lanes[name] for name in names]
        is_busy = any(one.running or one.is_probing or one.is_cycling for one in unit)
        if wants_cycle(lanes[device]) and not is_busy:
            yield device, unit


def switching(lanes: Mapping[str, Lane], units: Mapping[str, tuple[str, ...]]) -> set[str]:
    """The devices on which nothing may start, because their unit is switched now or next."""
    return {
        name
        for device, names in units.items()
        if lanes[device].is_cycling or wants_cycle(lanes[device])
        for name in names
    }


def in_cycle(lane: Lane) -> Lane:
    """Returns a lane of a unit that is switched off and on now."""
    return replace(lane, is_cycling=True, n_lost_in_a_row=0, n_cycles=lane.n_cycles + 1)


def after_cycle(lane: Lane, error: str | None, now_s: float) -> Lane:
    """Returns a lane of the unit afterwards; a device that was set aside is probed at once."""
    lane = replace(lane, is_cycling=False)
    if error is not None:
        return lane
    probe_at_s = None if lane.probe_at_s is None else now_s
    return replace(lane, n_failures_in_a_row=0, n_probes=0, probe_at_s=probe_at_s)

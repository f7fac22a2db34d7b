"""The sentences with which dispatch explains itself to the user."""

from collections.abc import Sequence
from dataclasses import replace

from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.foundation.wording import count_of, duration, few_of
from fleetrank.orchestrator.dispatch.decide.lane import Lane
from fleetrank.orchestrator.dispatch.decide.power import MOST_CYCLES
from fleetrank.orchestrator.dispatch.decide.retry import is_host_lost
from fleetrank.orchestrator.dispatch.decide.state import DispatchState
from fleetrank.orchestrator.progress_events import DeviceWaits, Notice, PowerCycled

SILENT_S = 60.0
"""Longer than this without output looks like a hang: a slow model and a hang look the same."""
_NAMED = 3
"""Number of devices that one line names; the others are counted."""


def answers_again(device: str) -> Notice:
    """A device that was set aside is used again."""
    return Notice(level="info", message=f"{device} answers again")


def given_up(device: str, failure: Failure) -> Notice:
    """A device answered no probe."""
    remedy = "`fleetrank sweep resume` measures what is left"
    return Notice(level="warning", message=f"{device} is given up: {failure.message}; {remedy}")


def joined(host: str, devices: Sequence[str], *, is_used: bool) -> Notice:
    """A host whose devices were given up is there."""
    named = few_of(devices, _NAMED)
    if is_used:
        return Notice(level="info", message=f"host {host} has joined: {named} will be used")
    command = f"`fleetrank sweep resume` with `with={host}`"
    return Notice(level="info", message=f"host {host} has joined; {command} measures on {named}")


def measured_again(device: str, n_cells: int, reason: str) -> Notice:
    """A round was disturbed."""
    message = f"a round of {count_of(n_cells, 'cell')} on {device} is measured again: {reason}"
    return Notice(level="info", message=message)


def set_aside(device: str, failure: Failure) -> Notice:
    """A device waits for its host, or failed too often."""
    if is_host_lost(failure):
        return Notice(level="warning", message=f"{failure.message}; {device} waits for it")
    message = f"{device} failed repeatedly and is set aside until it answers"
    return Notice(level="warning", message=message)


def waits(lane: Lane, reason: str, now_s: float) -> DeviceWaits:
    """A device that rests until it is asked again, or is set aside until it answers a probe."""
    rest = lane.rest
    until_s = lane.probe_at_s if rest is None else rest.until_s
    return DeviceWaits(
        device=lane.device,
        host=lane.host,
        reason=reason,
        waited_s=0.0 if rest is None else now_s - rest.since_s,
        ask_again_s=0.0 if until_s is None else max(0.0, until_s - now_s),
        limit_s=None if rest is None else rest.limit_s,
    )


def is_switched(lane: Lane, now_s: float) -> DeviceWaits:
    """A device whose power is switched off and on."""
    return waits(lane, "it was lost repeatedly and is switched off and on", now_s)


def power_cycled(lane: Lane, error: str | None) -> PowerCycled:
    """The end of that."""
    return PowerCycled(
        device=lane.device, host=lane.host, number=lane.n_cycles, most=MOST_CYCLES, error=error
    )


def waits_for_resume(lane: Lane, failure: Failure, now_s: float) -> DeviceWaits:
    """A device that was given up."""
    reason = f"given up until `fleetrank sweep resume`: {failure.message}"
    return replace(waits(lane, reason, now_s), is_left_out=True)


def store_failed(message: str) -> Notice:
    """A row could not be written."""
    message = f"{message}; the sweep stops when the running repeats have finished"
    return Notice(level="warning", message=message)


def silence(state: DispatchState, now_s: float) -> Notice | None:
    """Reports running and waiting devices after each minute without an event, else `None`."""
    if now_s - state.announced_s < SILENT_S:
        return None
    lanes = state.lanes.values()
    running = sorted(
        (lane.running_since_s, lane.device, attempt.repeat.cell.label, attempt.repeat.index)
        for lane in lanes
        for attempt in lane.running
        if lane.running_since_s is not None
    )
    lines = [
        f"{device} has been busy for {duration(now_s - since_s)} with {label}, repeat {index + 1}"
        for since_s, device, label, index in running
    ]
    lines += [f"waiting for {lane.device}" for lane in lanes if lane.probe_at_s is not None]
    more = [f"{len(lines) - _NAMED} more"] if len(lines) > _NAMED else []
    text = "; ".join([*lines[:_NAMED], *more]) or "no repeat has started yet"
    return Notice(level="info", message=f"no output for {duration(SILENT_S)}; {text}")

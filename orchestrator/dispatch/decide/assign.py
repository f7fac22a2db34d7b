"""Decides which attempt each device runs next; pure functions."""

from collections import defaultdict
from dataclasses import dataclass

from fleetrank.orchestrator.dispatch.decide.state import DispatchState, Lane
from fleetrank.orchestrator.identity.cells import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A device and the attempt it runs next."""

    device: str
    attempt: Attempt


def next_assignments(state: DispatchState, now_s: float) -> tuple[Assignment, ...]:
    """Returns the attempts that may start now; at most one per device.

    A device that needs quiet runs alone on its host. Among the devices of a host, the one that
    waited longest is served first. If that device needs quiet, nothing new starts on the host until
    its running tasks have ended. So neither kind of device starves the other.
    """
    if state.is_stopping:
        return ()
    by_host: dict[str, list[Lane]] = defaultdict(list)
    for lane in state.lanes.values():
        by_host[lane.host].append(lane)
    return tuple(
        assignment for lanes in by_host.values() for assignment in _assign_host(lanes, now_s)
    )


def _assign_host(lanes: list[Lane], now_s: float) -> list[Assignment]:
    idle = [lane for lane in lanes if lane.running is None]
    is_busy = len(idle) < len(lanes)
    if not idle or any(lane.needs_quiet for lane in lanes if lane.running is not None):
        return []
    chosen: list[Assignment] = []
    for lane in sorted(idle, key=lambda lane: (lane.turn, lane.device)):
        attempt = lane.next_ready(now_s)
        if attempt is None:
            continue
        if not lane.needs_quiet:
            chosen.append(Assignment(device=lane.device, attempt=attempt))
            continue
        if not is_busy and not chosen:
            chosen.append(Assignment(device=lane.device, attempt=attempt))
        break
    return chosen

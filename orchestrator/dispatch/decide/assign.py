"""Which attempt goes to which device next: pure."""

from collections import defaultdict
from dataclasses import dataclass

from fleetrank.orchestrator.dispatch.decide.state import DispatchState, Lane
from fleetrank.orchestrator.identity.cells import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A device and what it shall do now."""

    device: str
    attempt: Attempt


def next_assignments(state: DispatchState, now_s: float) -> tuple[Assignment, ...]:
    """Everything that may start now; one attempt per device at most.

    A device that needs quiet runs with nothing else on its host. Devices of a host are served in
    the order in which they were served last: when a quiet one is next, nothing new starts beside
    it, the host drains, and so neither kind starves the other.
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

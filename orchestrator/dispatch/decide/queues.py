"""The pending attempts of each device; the next one is generated when a device has none."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from fleetrank.device_agents.contract.device_facts import DeviceFacts
from fleetrank.orchestrator.dispatch.decide.state import DispatchState, with_lane
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.dispatch.decide.work import SweepWork, device_attempts
from fleetrank.orchestrator.identity.cells import Attempt, Cell, Repeat


def are_equal(one: DeviceFacts, other: DeviceFacts) -> bool:
    """Whether two devices are equal, so that one can measure in place of the other."""
    return _make(one) == _make(other)


def handed_over(state: DispatchState, giver: str, taker: str) -> DispatchState:
    """Moves one pending attempt from `giver` to `taker`, which has none, and returns the new state.

    `giver` is given up and runs no attempts. The state is unchanged if `giver` has none pending.
    """
    source = state.lanes[giver]
    if source.fresh is not None:
        attempt, source = source.fresh, replace(source, fresh=None)
    elif source.retries:
        attempt, source = source.retries[0].attempt, replace(source, retries=source.retries[1:])
    else:
        return state
    # Its earlier attempts were made on another device.
    attempt = replace(attempt, n_tries=0, taker=taker)
    return with_lane(with_lane(state, source), replace(state.lanes[taker], fresh=attempt))


def _make(facts: DeviceFacts) -> tuple[object, ...]:
    return (
        facts.device_model, facts.tier, facts.origin, facts.os, facts.arch, facts.cpu_model,
        facts.logical_cores,
    )  # fmt: skip


class Queues:
    """Keeps one lazy queue for each device that has cells with an artifact."""

    def __init__(self, work: SweepWork, tally: Tally) -> None:
        cells_of: dict[str, list[Cell]] = defaultdict(list)
        for cell in work.plan.cells:
            if cell.export in work.artifacts:
                cells_of[cell.device].append(cell)
        self._allows_takeover = work.plan.allows_takeover
        self._queues: dict[str, Iterator[Attempt]] = {
            device: device_attempts(work.plan, cells, tally) for device, cells in cells_of.items()
        }
        self._left_out: set[Repeat] = set()

    @property
    def devices(self) -> Iterable[str]:
        """Devices that have a queue, in the plan's order."""
        return self._queues.keys()

    def leave_out(self, repeat: Repeat) -> None:
        """Skips a repeat that an earlier driver started and that is still in flight."""
        self._left_out.add(repeat)

    def refilled(
        self, state: DispatchState, device: str, facts: Mapping[str, DeviceFacts]
    ) -> DispatchState:
        """Puts the next attempt into the lane of a device that has none, and returns the new state.

        A device with an empty queue takes over attempts of an equal device that was given up, if
        the plan allows it.

        Args:
            state: of all lanes.
            device: the device whose lane may be empty.
            facts: facts of the devices that have answered; they decide which devices are equal.
        """
        if state.lanes[device].fresh is not None:
            return state
        for attempt in self._queues[device]:
            if attempt.repeat not in self._left_out:
                return with_lane(state, replace(state.lanes[device], fresh=attempt))
        if self._allows_takeover and not state.lanes[device].is_given_up:
            return self._inherited(state, device, facts)
        return state

    def _inherited(
        self, state: DispatchState, device: str, facts: Mapping[str, DeviceFacts]
    ) -> DispatchState:
        for giver, lane in state.lanes.items():
            if not lane.is_given_up or not {giver, device} <= facts.keys():
                continue
            if are_equal(facts[device], facts[giver]):
                return handed_over(self.refilled(state, giver, facts), giver, device)
        return state

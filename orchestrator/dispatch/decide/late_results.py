"""Measurements that nobody waits for: made for a driver that is gone, or believed lost. Pure."""

from collections.abc import Container, Mapping
from dataclasses import replace

from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.vocabulary import Status
from fleetrank.orchestrator.dispatch.decide.state import DispatchState
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.identity.cells import Attempt, Cell, Repeat


def attempt_of(
    task_id: str, sweep_id: str, cells: Mapping[str, Cell], devices: Container[str]
) -> Attempt | None:
    """The attempt that a task id names; `None` when it is none of this sweep's."""
    match task_id.split("/"):
        case [sweep, cell_key, index, number, *takers] if sweep == sweep_id and cell_key in cells:
            if not (index.isdecimal() and number.isdecimal()):
                return None
            if len(takers) > 1 or any(taker not in devices for taker in takers):
                return None
            repeat = Repeat(cell=cells[cell_key], index=int(index))
            taker = takers[0] if takers else None
            return Attempt(repeat=repeat, number=int(number), taker=taker)
        case _:
            return None


def adopted(attempt: Attempt, measurement: Measurement, tally: Tally) -> Attempt | None:
    """Under which attempt a late measurement is stored; `None` when it adds nothing.

    A good one counts while its repeat has none, even if a later try failed. A failed one counts
    where nothing is stored of its attempt: a driver that died had begun it.
    """
    key = attempt.repeat.cell.cell_key, attempt.repeat.index
    next_number = tally.next_attempt(key)
    is_good = measurement.status is Status.OK and not tally.is_measured(key)
    if is_good or attempt.number >= next_number:
        return replace(attempt, number=next_number)
    return None


def is_running(state: DispatchState, repeat: Repeat) -> bool:
    """Whether an attempt at this repeat is under way."""
    return any(
        lane.running is not None and lane.running.repeat == repeat for lane in state.lanes.values()
    )

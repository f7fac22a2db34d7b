"""Late measurements: made for an earlier driver, or believed lost. Pure functions."""

from collections.abc import Container, Mapping
from dataclasses import replace

from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.foundation.vocabulary import Status
from fleetrank.orchestrator.dispatch.decide.state import DispatchState
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.identity.cells import Attempt, Cell, Repeat


def attempt_of(
    task_id: str, sweep_id: str, cells: Mapping[str, Cell], devices: Container[str]
) -> Attempt | None:
    """Returns the attempt that a task id names; `None` if it belongs to another sweep."""
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
    """Returns the attempt under which a late measurement is stored; `None` if it is discarded.

    A valid measurement is stored if its repeat has none yet, even if a later attempt failed. A
    failed measurement is stored if its attempt has no row: an earlier driver started it and died.
    """
    key = attempt.repeat.cell.cell_key, attempt.repeat.index
    next_number = tally.next_attempt(key)
    is_good = measurement.status is Status.OK and not tally.is_measured(key)
    if is_good or attempt.number >= next_number:
        return replace(attempt, number=next_number)
    return None


def is_running(state: DispatchState, repeat: Repeat) -> bool:
    """Whether an attempt at this repeat is in flight."""
    return any(
        lane.running is not None and lane.running.repeat == repeat for lane in state.lanes.values()
    )

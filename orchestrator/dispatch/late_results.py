"""Measurements that nobody waits for: made for a driver that is gone, or believed lost. Pure."""

from collections.abc import Mapping

from device_agents.measurement import Measurement
from device_agents.vocabulary import Status
from orchestrator.cells import Attempt, Cell, Repeat
from orchestrator.dispatch.state import DispatchState
from orchestrator.dispatch.tally import Tally


def attempt_of(task_id: str, sweep_id: str, cells: Mapping[str, Cell]) -> Attempt | None:
    """The attempt that a task id names; `None` when it is none of this sweep's cells."""
    parts = task_id.split("/")
    if len(parts) != 4 or parts[0] != sweep_id or parts[1] not in cells:
        return None
    if not (parts[2].isdecimal() and parts[3].isdecimal()):
        return None
    return Attempt(repeat=Repeat(cell=cells[parts[1]], index=int(parts[2])), number=int(parts[3]))


def adopted(attempt: Attempt, measurement: Measurement, tally: Tally) -> Attempt | None:
    """Under which attempt a late measurement is stored; `None` when it adds nothing.

    A good one counts while its repeat has none. A failed one counts where nothing is stored of
    its attempt: a driver that died had begun it.
    """
    key = attempt.repeat.cell.cell_key, attempt.repeat.index
    next_number = tally.next_attempt(key)
    is_good = measurement.status is Status.OK and not tally.is_finished(key)
    if is_good or attempt.number >= next_number:
        return Attempt(repeat=attempt.repeat, number=next_number)
    return None


def is_running(state: DispatchState, repeat: Repeat) -> bool:
    """Whether an attempt at this repeat is under way."""
    return any(
        lane.running is not None and lane.running.repeat == repeat for lane in state.lanes.values()
    )

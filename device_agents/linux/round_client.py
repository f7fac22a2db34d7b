"""Measures the cells of a round: a worker process each, which take turns and sleep in between.

All workers load and warm up one after the other. Then each cycle gives every worker one block, in
an order of `timing.orders`. A worker that fails ends its own cell; the others go on.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from statistics import median

from fleetrank.device_agents.contract.agent import StopRequested, never_stop
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.protocol import Turn
from fleetrank.device_agents.contract.task import BlockPolicy, MeasureTask
from fleetrank.device_agents.linux.worker_client import WORKER, Worker
from fleetrank.device_agents.round_rule import difference_half_width, orders
from fleetrank.device_agents.timing import median_half_width
from fleetrank.foundation.units import NS_PER_S


def measure_round(
    tasks: Sequence[MeasureTask],
    stop_requested: StopRequested = never_stop,
    finish_requested: StopRequested = never_stop,
    *,
    command: Sequence[str] = WORKER,
) -> tuple[Measurement, ...]:
    """Measures one repeat of each task; never raises for a failure of a worker.

    Args:
        tasks: of cells that fit into memory together. The policies of the first one count.
        stop_requested: ends all of them; each becomes `interrupted`.
        finish_requested: ends the round after the current cycle of blocks, which all count.
        command: starts a worker.

    Returns:
        One measurement per task, in their order. Their `round_id` is the id of the first task.
    """
    with ExitStack() as stack:
        cells = [Worker(task, stop_requested) for task in tasks]
        for cell in cells:
            cell.start(stack, command)
        blocks = tasks[0].blocks or BlockPolicy()
        reason = _take_turns(cells, blocks, tasks[0].seed, finish_requested)
        for cell in cells:
            cell.answer(reason)
        return tuple(replace(cell.measurement, round_id=tasks[0].task_id) for cell in cells)


def _take_turns(
    cells: Sequence["Worker"],
    blocks: BlockPolicy,
    seed: int,
    finish_requested: StopRequested,
) -> Turn:
    """Gives blocks, cycle by cycle, until the rule says why the round ends."""
    for n_cycles, order in enumerate(orders(len(cells), seed), start=1):
        for number in order:
            cells[number].answer(Turn.BLOCK)
        going = [cell for cell in cells if cell.is_waiting]
        if (reason := _why_over(going, blocks, n_cycles)) is not None:
            return reason
        if finish_requested():
            return Turn.STOPPED
    raise AssertionError  # the orders have no end


def _why_over(going: Sequence["Worker"], blocks: BlockPolicy, n_cycles: int) -> Turn | None:
    """The reason to end a round after a cycle; `None` continues it.

    A round whose cells all failed is over at once.
    """
    if not going or n_cycles >= blocks.max_blocks:
        return Turn.MAX_SAMPLES
    policy = going[0].task.policy
    if max(cell.timed_ns for cell in going) >= policy.max_time_s * NS_PER_S:
        return Turn.MAX_TIME
    if n_cycles < blocks.min_blocks:
        return None
    if len(going) == 1:
        width = median_half_width([ns for block in going[0].samples_ns for ns in block])
    else:
        width = difference_half_width(
            [[median(block) for block in cell.samples_ns] for cell in going]
        )
    return Turn.HALF_WIDTH if width is not None and width < policy.half_width else None

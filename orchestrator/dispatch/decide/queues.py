"""The pending attempts of a sweep in the plan's order; generated one by one."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.models.cards.card import ExportRequest
from fleetrank.orchestrator.dispatch.decide.lane import RepeatKey
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.dispatch.decide.work import SweepWork
from fleetrank.orchestrator.identity.cells import Attempt, Cell, Plan, Repeat


class Queues:
    """Keeps one lazy queue for each device that has cells with an artifact."""

    def __init__(self, work: SweepWork, tally: Tally) -> None:
        cells_of: dict[str, list[Cell]] = defaultdict(list)
        for cell in work.plan.cells:
            if cell.export in work.artifacts:
                cells_of[cell.device].append(cell)
        self._queues: dict[str, Iterator[Attempt]] = {
            device: _device_attempts(work.plan, cells, tally) for device, cells in cells_of.items()
        }
        self._left_out: set[RepeatKey] = set()

    @property
    def devices(self) -> Iterable[str]:
        """Devices that have a queue, in the plan's order."""
        return self._queues.keys()

    def leave_out(self, key: RepeatKey) -> None:
        """Skips a repeat that an earlier driver started and that is still in flight."""
        self._left_out.add(key)

    def next_attempt(self, device: str) -> Attempt | None:
        """Takes the next attempt of a device out of its queue; `None` if the queue is empty."""
        for attempt in self._queues[device]:
            key = attempt.repeat.cell.cell_key, attempt.repeat.index
            if key not in self._left_out:
                return attempt
        return None


def failed_attempts(
    plan: Plan, failures: Mapping[ExportRequest, Failure], tally: Tally
) -> Iterator[tuple[Attempt, Failure]]:
    """Yields the attempts that fail without being started.

    The export of their cell failed, or another repeat failed in a way that ends the whole cell.
    """
    for cell in plan.cells:
        failure = failures.get(cell.export) or tally.verdict(cell.cell_key)
        if failure is not None:
            yield from ((attempt, failure) for attempt in attempts_left(plan, cell, tally))


def attempts_left(plan: Plan, cell: Cell, tally: Tally) -> Iterator[Attempt]:
    """Yields the next attempt at each unfinished repeat of a cell; lazy."""
    for index in range(plan.repeats):
        key = (cell.cell_key, index)
        if not tally.is_finished(key):
            repeat = Repeat(cell=cell, index=index)
            yield Attempt(repeat=repeat, number=tally.next_attempt(key))


def are_equal(one: DeviceFacts, other: DeviceFacts) -> bool:
    """Whether two devices are equal, so that one can measure in place of the other."""
    return _make(one) == _make(other)


def _make(facts: DeviceFacts) -> tuple[object, ...]:
    return (
        facts.device_model, facts.tier, facts.origin, facts.os, facts.arch, facts.cpu_model,
        facts.logical_cores,
    )  # fmt: skip


def _device_attempts(plan: Plan, cells: Sequence[Cell], tally: Tally) -> Iterator[Attempt]:
    """Yields the remaining attempts of one device's cells, in the plan's order."""
    for repeat in replace(plan, cells=tuple(cells)).order():
        key = (repeat.cell.cell_key, repeat.index)
        if not tally.is_finished(key):
            yield Attempt(repeat=repeat, number=tally.next_attempt(key))

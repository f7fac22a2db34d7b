"""The work of a sweep: plan, files, the tasks made from them, and the pending attempts in order.

Attempts are generated one by one, in the order of the plan.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import CanaryTask, MeasureTask
from fleetrank.foundation.vocabulary import Format
from fleetrank.models.cards.card import Artifact, ExportRequest
from fleetrank.orchestrator.dispatch.decide.lane import Lane, RepeatKey, key_of
from fleetrank.orchestrator.dispatch.decide.looks import Looks
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.identity import (
    Attempt,
    Cell,
    DevicePlace,
    Plan,
    Repeat,
    SweepFacts,
    rounds,
)
from fleetrank.orchestrator.keys import TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class Exports:
    """The files of a sweep, each by its request.

    Attributes:
        failures: why a file is missing; permanent, and shared by all cells that need it.
        primers: tiny files that warm up a runtime before memory is counted.
        is_complete: false if a stop was requested before all files were exported.
    """

    artifacts: Mapping[ExportRequest, Artifact]
    failures: Mapping[ExportRequest, Failure] = field(default_factory=dict)
    primers: Mapping[Format, Artifact] = field(default_factory=dict)
    is_complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepWork:
    """The constant input of a controller.

    Attributes:
        canaries: the canary of each phone, by device name.
        is_trusted: the user declared that files from outside are trusted.
        spent_s: time that earlier runs measured, for the budget of a plan until decided.
    """

    sweep: SweepFacts
    plan: Plan
    places: Mapping[str, DevicePlace]
    exports: Exports
    canaries: Mapping[str, CanaryTask] = field(default_factory=dict)
    is_trusted: bool = False
    spent_s: float = 0.0


def tasks_of(
    work: SweepWork, attempts: Sequence[Attempt], canary: CanaryTask | None = None
) -> tuple[MeasureTask, ...]:
    """Returns the tasks of attempts that start together: a round if the plan has rounds."""
    tasks = tuple(task_of(work, attempt, canary) for attempt in attempts)
    rules, first = work.plan.rounds, attempts[0]
    is_loop = first.repeat.cell.execution.workload.steps is not None
    if rules is None or is_loop or not work.places[first.device].takes_turns:
        return tasks
    members = tuple(task.task_id for task in tasks)
    return tuple(replace(task, blocks=rules.blocks, members=members) for task in tasks)


def task_of(work: SweepWork, attempt: Attempt, canary: CanaryTask | None = None) -> MeasureTask:
    """Returns the task of one attempt; only for cells that have an artifact."""
    cell, index, plan = attempt.repeat.cell, attempt.repeat.index, work.plan
    artifact = work.exports.artifacts[cell.export]
    primer = work.exports.primers.get(cell.export.format)
    cost = artifact.cost
    # A profile and a set of processes give no output to compare.
    is_checked = not (cell.execution.is_profiled or cell.execution.replicas)
    has_cost = cost.macs is not None and cost.parameters is not None
    return MeasureTask(
        task_id=task_id_of(work, attempt),
        artifact_path=artifact.path,
        artifact_sha256=artifact.sha256,
        weights_path=artifact.weights_path,
        execution=cell.execution,
        is_trusted=artifact.is_trusted or work.is_trusted,
        primer_path=None if primer is None else primer.path,
        check_path=artifact.check_path if is_checked else None,
        # Differs between attempts, and is equal for the same attempt.
        seed=zlib.crc32(f"{plan.seed}/{cell.cell_key}/{index}/{attempt.number}".encode()),
        policy=plan.policy,
        limits=plan.limits,
        macs_and_parameters=(cost.macs or 0, cost.parameters or 0) if has_cost else None,
        token_costs=cell.costs,
        canary=canary,
        quiet_s=plan.hosts.longest_quiet_s(),
    )


def canary_of(work: SweepWork, lane: Lane) -> CanaryTask | None:
    """Returns the canary of the attempt that a lane just started; `None` if no canary is due.

    It runs before a device's first attempt, every `canary_every` repeats, and after the last
    attempt, when no other is pending. If the last attempt fails, its retry has a canary again.
    """
    canary = work.canaries.get(lane.device)
    if canary is None:
        return None
    runs_before = (lane.n_started - 1) % work.plan.canary_every == 0
    # Until it is decided, none is known to be the last one.
    runs_after = not lane.fresh and not lane.retries and work.plan.until is None
    if not (runs_before or runs_after):
        return None
    return replace(canary, runs_before=runs_before, runs_after=runs_after)


def task_id_of(work: SweepWork, attempt: Attempt) -> str:
    """Returns the id of an attempt's task."""
    repeat = attempt.repeat
    task_id = TaskId(
        sweep_id=work.sweep.sweep_id,
        cell_key=repeat.cell.cell_key,
        repeat=repeat.index,
        attempt=attempt.number,
        taker=attempt.taker,
    )
    return str(task_id)


class Queues:
    """Keeps one lazy queue for each device that has cells with an artifact."""

    def __init__(self, work: SweepWork, tally: Tally, looks: Looks | None) -> None:
        cells_of: dict[str, list[Cell]] = defaultdict(list)
        for cell in work.plan.cells:
            if cell.export in work.exports.artifacts:
                cells_of[cell.device].append(cell)
        self._queues: dict[str, Iterator[tuple[Attempt, ...]]] = {
            device: _device_attempts(work, cells, tally, looks)
            for device, cells in cells_of.items()
        }
        self._left_out: set[RepeatKey] = set()

    @property
    def devices(self) -> Iterable[str]:
        """Devices that have a queue, in the plan's order."""
        return self._queues.keys()

    def leave_out(self, key: RepeatKey) -> None:
        """Skips a repeat that an earlier driver started and that is still in flight."""
        self._left_out.add(key)

    def next_attempts(self, device: str) -> tuple[Attempt, ...]:
        """Takes the next attempts of a device out of its queue; `()` if the queue is empty."""
        for attempts in self._queues[device]:
            if left := tuple(one for one in attempts if key_of(one) not in self._left_out):
                return left
        return ()


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
    """Yields the next attempt at each unfinished repeat of a cell that is needed in any case."""
    for index in range(plan.least_repeats):
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


def _device_attempts(
    work: SweepWork, cells: Sequence[Cell], tally: Tally, looks: Looks | None
) -> Iterator[tuple[Attempt, ...]]:
    """Yields the remaining attempts of one device's cells that start together, in plan order."""
    takes_turns = work.places[cells[0].device].takes_turns
    sizes = {request: file.size_bytes for request, file in work.exports.artifacts.items()}
    for index in range(work.plan.repeats):
        chosen = cells if looks is None else looks.cells_of_round(cells, index)
        if not chosen:
            return
        plan = replace(work.plan, cells=tuple(chosen))
        order: Iterable[tuple[Repeat, ...]] = ((repeat,) for repeat in plan.order(index))
        if plan.rounds is not None and takes_turns:
            order = rounds(plan, plan.rounds, sizes, index)
        for repeats in order:
            left = [
                Attempt(repeat=one, number=tally.next_attempt((one.cell.cell_key, index)))
                for one in repeats
                if not tally.is_finished((one.cell.cell_key, index))
            ]
            if left:
                yield tuple(left)
    if looks is not None:
        looks.cells_of_round(cells, work.plan.repeats)

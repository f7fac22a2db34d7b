"""The state of the dispatcher, which only `step` changes; a lane in it is a frozen value."""

import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Self

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.device_agents.contract.task import CanaryTask, MeasureTask
from fleetrank.foundation.vocabulary import ErrorKind, Format, Status
from fleetrank.models.cards.card import Artifact, ExportRequest
from fleetrank.orchestrator.dispatch.decide.looks import Looks
from fleetrank.orchestrator.dispatch.decide.retry import (
    Lane,
    RepeatKey,
    RetryRules,
    condemns_cell,
    key_of,
    started,
)
from fleetrank.orchestrator.identity import (
    Attempt,
    Cell,
    DevicePlace,
    Plan,
    Repeat,
    RowKey,
    SweepFacts,
    TaskId,
    rounds,
    token_costs,
)

# Progress of a sweep: the outcome of each (cell, repeat), read from its rows.

_NOTHING_TRIED = frozenset(
    {ErrorKind.EXPORT_FAILED, ErrorKind.VERIFICATION_FAILED, ErrorKind.DEVICE_LOST}
)


class Standing(Enum):
    """The outcome of the attempts at one repeat so far."""

    OK = "ok"
    FAILED = "failed"
    """Permanently: another attempt would fail the same way."""
    MAY_RETRY = "may_retry"
    """Only transient failures so far; a resumed sweep tries again."""


class Tally:
    """Counts repeats by outcome: one pass over the journal, then row by row."""

    def __init__(self) -> None:
        self._standing: dict[RepeatKey, Standing] = {}
        self._next_attempt: dict[RepeatKey, int] = {}
        self._measured: set[str] = set()
        self._again: set[RepeatKey] = set()
        self._latencies_ns: dict[RepeatKey, float] = {}
        self._verdicts: dict[str, Failure] = {}

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, object]]) -> Self:
        """Returns the tally of a journal."""
        tally = cls()
        for row in rows:
            tally.observe(row)
        return tally

    def observe(self, row: Mapping[str, object]) -> None:
        """Counts one stored row."""
        is_ok = row.get("status") == Status.OK
        row_key = RowKey.of(row)
        failure = None if is_ok else _failure_of(row)
        key = (row_key.cell_key, row_key.repeat)
        self.count(key, row_key.attempt, failure)
        if row.get("stopping_rule") is not None and isinstance(row["latency_p50_ns"], float):
            self.time(key, row["latency_p50_ns"])

    def time(self, key: RepeatKey, latency_ns: float) -> None:
        """Keeps the latency of a repeat, for the decisions of a plan until decided."""
        self._latencies_ns[key] = latency_ns

    def latency_ns(self, key: RepeatKey) -> float:
        """The latency of a repeat, in a plan until decided; NaN if it has none."""
        return self._latencies_ns.get(key, math.nan)

    def count(self, key: RepeatKey, attempt: int, failure: Failure | None) -> None:
        """Counts one attempt; `failure` is `None` for a valid measurement."""
        self._next_attempt[key] = max(self._next_attempt.get(key, 0), attempt + 1)
        if failure is None:
            self._standing[key] = Standing.OK
            self._measured.add(key[0])
            self._again.discard(key)
        elif self._standing.get(key) is not Standing.OK:
            # Without a file or a device nothing was measured. At a resume the disk may have room,
            # the file may be trusted, or the phone may accept this computer.
            may_pass = failure.is_transient or failure.kind in _NOTHING_TRIED
            self._standing[key] = Standing.MAY_RETRY if may_pass else Standing.FAILED
            if condemns_cell(failure):
                self._verdicts.setdefault(key[0], _verdict(key, failure))

    def withdraw(self, key: RepeatKey, failure: Failure) -> None:
        """Counts a repeat as failed whose measurement could not be stored."""
        self._standing.pop(key, None)
        self.count(key, self.next_attempt(key) - 1, failure)

    def reopen(self, cell_keys: Collection[str]) -> int:
        """Lets the failed repeats of these cells be tried again; returns how many there are."""
        wanted = set(cell_keys)
        failed = [
            key
            for key, standing in self._standing.items()
            if key[0] in wanted and standing is not Standing.OK
        ]
        self._standing.update(dict.fromkeys(failed, Standing.MAY_RETRY))
        for cell_key in wanted:
            self._verdicts.pop(cell_key, None)
        return len(failed)

    def measure_again(self, keys: Collection[RepeatKey]) -> None:
        """Opens measured repeats for a further attempt; without one, the earlier still counts."""
        self._again.update(keys)

    def verdict(self, cell_key: str) -> Failure | None:
        """Returns why no further repeat of a cell is tried; `None` if it may be tried.

        A cell with one valid repeat is never given up: a later failure counts for its own repeat
            only.
        """
        return None if cell_key in self._measured else self._verdicts.get(cell_key)

    def is_finished(self, key: RepeatKey) -> bool:
        """Whether the repeat needs no further attempt, now or after a resume."""
        standing = self._standing.get(key, Standing.MAY_RETRY)
        return standing is not Standing.MAY_RETRY and key not in self._again

    def is_measured(self, key: RepeatKey) -> bool:
        """Whether the repeat has a valid measurement, and is not to be measured again."""
        return self._standing.get(key) is Standing.OK and key not in self._again

    def next_attempt(self, key: RepeatKey) -> int:
        """Returns the number of the next attempt; a number is never used twice."""
        return self._next_attempt.get(key, 0)

    @property
    def n_ok(self) -> int:
        """Repeats with a valid measurement."""
        return self._count(Standing.OK)

    @property
    def n_failed(self) -> int:
        """Repeats that were tried and have no valid measurement."""
        return len(self._standing) - self.n_ok

    def n_untried(self, plan: Plan) -> int:
        """Repeats of a plan that need to be tried in any case, and were not."""
        keys = ((one.cell_key, index) for one in plan.cells for index in range(plan.least_repeats))
        return sum(key not in self._standing for key in keys)

    @property
    def n_finished(self) -> int:
        """Repeats that a resume would skip."""
        return len(self._standing) - self._count(Standing.MAY_RETRY)

    def _count(self, wanted: Standing) -> int:
        return sum(standing is wanted for standing in self._standing.values())


def _failure_of(row: Mapping[str, object]) -> Failure:
    """Returns the failure that a row stores; a kind of another version condemns no cell."""
    kind = row.get("error_kind")
    return Failure(
        kind=ErrorKind(str(kind)) if kind in set(ErrorKind) else ErrorKind.INTERNAL,
        message=str(row.get("error_message")),
        remedy=str(row.get("error_remedy")),
        is_transient=row.get("error_is_transient") is not False,
    )


def _verdict(key: RepeatKey, failure: Failure) -> Failure:
    return Failure(
        kind=failure.kind,
        message=f"not tried: repeat {key[1] + 1} failed with {failure.kind}: {failure.message}",
        remedy=failure.remedy,
        is_transient=False,
    )


# The work of a sweep: plan, files, the tasks made from them, and the pending attempts in order.
#
# Attempts are generated one by one, in the order of the plan.


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
        is_profiled: the tasks profile their cells instead of measuring latencies.
        spent_s: time that earlier runs measured, for the budget of a plan until decided.
    """

    sweep: SweepFacts
    plan: Plan
    places: Mapping[str, DevicePlace]
    exports: Exports
    canaries: Mapping[str, CanaryTask] = field(default_factory=dict)
    is_trusted: bool = False
    is_profiled: bool = False
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
    has_cost = cost.macs is not None and cost.parameters is not None
    return MeasureTask(
        task_id=task_id_of(work, attempt),
        artifact_path=artifact.path,
        artifact_sha256=artifact.sha256,
        weights_path=artifact.weights_path,
        execution=cell.execution,
        is_trusted=artifact.is_trusted or work.is_trusted,
        primer_path=None if primer is None else primer.path,
        check_path=None if work.is_profiled or cell.replicas else artifact.check_path,
        # Differs between attempts, and is equal for the same attempt.
        seed=zlib.crc32(f"{plan.seed}/{cell.cell_key}/{index}/{attempt.number}".encode()),
        policy=plan.policy,
        timeout_s=plan.timeout_s,
        memory_limit_bytes=plan.memory_limit_bytes,
        macs_and_parameters=(cost.macs or 0, cost.parameters or 0) if has_cost else None,
        token_costs=token_costs(cell.export.card.language, cell.execution),
        canary=canary,
        quiet_s=plan.quiet_s,
        is_profiled=work.is_profiled,
        replicas=cell.replicas,
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


Turns = tuple[Attempt, Sequence[int]]
"""A cell of a round that was measured, and the medians of its blocks in ns."""

_POLL_S = 0.25
"""Longest wait between two checks of the stop switch; a user does not notice this delay."""


@dataclass(slots=True, kw_only=True)
class DispatchState:
    """Everything that a run of a sweep knows. Updated in place.

    The tally has an entry for each of up to 100,000 repeats, and a queue generates its attempts:
    a copy for each event would cost more than the event. The same events always give the same
    state, because nothing in it reads a clock, a file or a random number.

    Attributes:
        lanes: one for each device that has cells with an artifact.
        hosts: names of devices that are attached to the same host.
        quiet_here: devices whose measurements need this host quiet.
        facts: facts of the devices that have answered.
        in_flight: device of each running task, by task id.
        held: late results of repeats that have another attempt in flight.
        taken: tasks that are decided and not acknowledged yet.
        turns: what each device has measured of its running round, by device.
        spent: repeats that have ended in this run after their last attempt failed.
        shown_waits: the reason for which displays show a device to wait (`None`: it does not), and
            how long it had waited at its last line, by device.
        turn: number of attempts started so far.
        is_stopping: running attempts may finish; no new one starts.
        has_store_failed: a row could not be written; nothing is acknowledged any more.
        interrupted_s: when the running tasks were interrupted.
        is_abandoned: interrupted workers have not ended in time.
        synced_s: when rows were last synced, or when that failed.
        published_s: when rows were last published.
        announced_s: when the user last saw an event.
        looks: at the rounds of a plan until decided; else `None`.
    """

    work: SweepWork
    tally: Tally
    rules: RetryRules
    queues: Queues
    cells: Mapping[str, Cell]
    lanes: dict[str, Lane]
    hosts: tuple[tuple[str, ...], ...]
    quiet_here: tuple[str, ...]
    facts: dict[str, DeviceFacts]
    synced_s: float
    published_s: float
    announced_s: float
    looks: Looks | None = None
    in_flight: dict[str, str] = field(default_factory=dict)
    held: dict[RepeatKey, list[Measurement]] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)
    turns: dict[str, list[Turns]] = field(default_factory=dict)
    spent: set[RepeatKey] = field(default_factory=set)
    shown_waits: dict[str, tuple[str | None, float | None]] = field(default_factory=dict)
    turn: int = 0
    is_stopping: bool = False
    has_store_failed: bool = False
    interrupted_s: float | None = None
    is_abandoned: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is in flight and no further attempt may start."""
        if self.in_flight:
            return self.is_abandoned
        return self.is_stopping or not any(lane.has_pending for lane in self.lanes.values())

    def wait_s(self, now_s: float) -> float:
        """Returns how long to wait for measurements at most: until the next retry or probe."""
        moments = (lane.next_moment_s(now_s) for lane in self.lanes.values())
        due_s = min((moment for moment in moments if moment is not None), default=None)
        return _POLL_S if due_s is None else min(_POLL_S, due_s - now_s)

    def attempt_of(self, task_id: str) -> Attempt | None:
        """Returns the attempt that a task id names; `None` if it belongs to another sweep."""
        found = TaskId.parse(task_id)
        if found is None or found.sweep_id != self.work.sweep.sweep_id:
            return None
        cell = self.cells.get(found.cell_key)
        is_known = found.taker is None or found.taker in self.work.places
        if cell is None or not is_known or found.repeat >= self.work.plan.repeats:
            return None
        repeat = Repeat(cell=cell, index=found.repeat)
        return Attempt(repeat=repeat, number=found.attempt, taker=found.taker)

    def leaves_out(self, task_id: str) -> bool:
        """Whether a task is of this sweep, but of a cell that this run does not measure."""
        found = TaskId.parse(task_id)
        if found is None or found.sweep_id != self.work.sweep.sweep_id:
            return False
        return found.cell_key not in self.cells

    def is_running(self, key: RepeatKey) -> bool:
        """Whether an attempt at this repeat is in flight."""
        return any(
            key_of(attempt) == key for lane in self.lanes.values() for attempt in lane.running
        )

    def start(self, task_id: str, device: str, attempt: Attempt, now_s: float | None) -> None:
        """Notes a running attempt; `now_s` is `None` if an earlier driver started it."""
        self.turn += 1
        self.lanes[device] = started(self.lanes[device], attempt, self.turn, now_s)
        self.in_flight[task_id] = device

    def refill(self, device: str) -> None:
        """Gives a device that has none its next attempts.

        A device with an empty queue takes over attempts of an equal device that was given up, if
        the plan allows it.
        """
        lane = self.lanes[device]
        # A look at a round needs the results of all rounds before it.
        if lane.fresh or (self.looks is not None and (lane.running or lane.retries)):
            return
        attempts = self.queues.next_attempts(device)
        if not attempts and self.work.plan.allows_takeover and not lane.is_given_up:
            attempts = self._inherited(device)
        if attempts:
            self.lanes[device] = replace(lane, fresh=attempts)

    def refill_all(self) -> None:
        """Gives every device that has none its next attempt."""
        for device in self.lanes:
            self.refill(device)

    def revise(self, is_meant: Callable[[RepeatKey], bool]) -> None:
        """Removes pending attempts at finished repeats and numbers the others again.

        Called for repeats whose tally changed without an attempt of a lane.
        """
        for lane in self.lanes.values():
            pending = [waiting.attempt for waiting in lane.retries]
            if any(is_meant(key_of(attempt)) for attempt in (*pending, *lane.fresh)):
                self.lanes[lane.device] = self._revised(lane)

    def _revised(self, lane: Lane) -> Lane:
        retries = [(waiting, self._renumbered(waiting.attempt)) for waiting in lane.retries]
        fresh = [self._renumbered(attempt) for attempt in lane.fresh]
        return replace(
            lane,
            fresh=tuple(attempt for attempt in fresh if attempt is not None),
            retries=tuple(replace(w, attempt=again) for w, again in retries if again is not None),
        )

    def _renumbered(self, attempt: Attempt) -> Attempt | None:
        key = key_of(attempt)
        is_doomed = self.tally.verdict(key[0]) is not None
        if is_doomed or self.tally.is_finished(key):
            return None
        return replace(attempt, number=max(attempt.number, self.tally.next_attempt(key)))

    def _inherited(self, taker: str) -> tuple[Attempt, ...]:
        """Takes the next pending attempts of an equal device that was given up."""
        for giver, lane in self.lanes.items():
            if not lane.is_given_up or not {giver, taker} <= self.facts.keys():
                continue
            if not are_equal(self.facts[taker], self.facts[giver]):
                continue
            if given := self._given_by(giver):
                if not self.work.places[taker].takes_turns:
                    # It measures one attempt at a time; the others of a round wait for it.
                    self.lanes[giver] = replace(self.lanes[giver], fresh=given[1:])
                    given = given[:1]
                # Their earlier attempts were made on another device.
                return tuple(replace(one, n_tries=0, taker=taker) for one in given)
        return ()

    def _given_by(self, giver: str) -> tuple[Attempt, ...]:
        lane = self.lanes[giver]
        if lane.fresh:
            self.lanes[giver] = replace(lane, fresh=())
            return lane.fresh
        if attempts := self.queues.next_attempts(giver):
            return attempts
        if lane.retries:
            self.lanes[giver] = replace(lane, retries=lane.retries[1:])
            return (lane.retries[0].attempt,)
        return ()


def new_state(
    work: SweepWork, tally: Tally, facts: Mapping[str, DeviceFacts], now_s: float
) -> DispatchState:
    """Returns the state before the first event.

    Args:
        work: the plan and its files.
        tally: what the journal of the sweep holds; it is updated in place.
        facts: facts of the devices that answered at the start; the others are probed again, like
            devices that were set aside.
        now_s: seconds of the clock that the events use.
    """
    rule = work.plan.until
    looks = None
    if rule is not None:
        looks = Looks(rule, tally, now_s=now_s, spent_s=work.spent_s)
    queues = Queues(work, tally, looks)
    hosts: dict[str, list[str]] = defaultdict(list)
    for device in queues.devices:
        hosts[work.places[device].host].append(device)
    lanes = {
        device: Lane(
            device=device,
            host=work.places[device].host,
            needs_quiet=work.places[device].needs_quiet,
            probe_at_s=None if device in facts else now_s,
        )
        for device in queues.devices
    }
    return DispatchState(
        work=work,
        tally=tally,
        rules=RetryRules(max_attempts=work.plan.max_attempts, host_wait_s=work.plan.host_wait_s),
        queues=queues,
        cells={cell.cell_key: cell for cell in work.plan.cells},
        lanes=lanes,
        hosts=tuple(map(tuple, hosts.values())),
        quiet_here=tuple(
            name for name, lane in lanes.items() if lane.needs_quiet and work.places[name].is_here
        ),
        facts=dict(facts),
        synced_s=now_s,
        published_s=now_s,
        announced_s=now_s,
        looks=looks,
    )


Assignment = tuple[str, tuple[Attempt, ...]]
"""A device, and the attempts that it starts together."""


def next_assignments(state: DispatchState, now_s: float) -> Iterator[Assignment]:
    """Yields the devices that may start attempts now, and these; each device at most once.

    A device that needs quiet runs alone on its host. Among the devices of a host, the one that
    waited longest is served first. If that device needs quiet, nothing new starts on the host until
    its running tasks have ended. So neither kind of device starves the other.
    """
    for names in state.hosts:
        yield from _host_assignments([state.lanes[name] for name in names], now_s)


def _host_assignments(lanes: list[Lane], now_s: float) -> list[Assignment]:
    idle = [lane for lane in lanes if not lane.running]
    is_busy = len(idle) < len(lanes)
    if not idle or any(lane.needs_quiet for lane in lanes if lane.running):
        return []
    chosen: list[Assignment] = []
    for lane in sorted(idle, key=lambda lane: (lane.turn, lane.device)):
        attempts = lane.next_ready(now_s)
        if not attempts:
            continue
        if not lane.needs_quiet:
            chosen.append((lane.device, attempts))
            continue
        if not is_busy and not chosen:
            chosen.append((lane.device, attempts))
        break
    return chosen

"""The state of the dispatcher, which only `step` changes; a lane in it is a frozen value."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.orchestrator.dispatch.decide.lane import Lane, RepeatKey, key_of, started
from fleetrank.orchestrator.dispatch.decide.looks import Looks
from fleetrank.orchestrator.dispatch.decide.power import switching, units_of
from fleetrank.orchestrator.dispatch.decide.retry import RetryRules
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.dispatch.decide.work import Queues, SweepWork, are_equal
from fleetrank.orchestrator.identity import Attempt, Cell, Repeat
from fleetrank.orchestrator.keys import TaskId

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
        in_flight: the running attempts by task id, whose number may have changed since.
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
        units: the devices that lose power together, by each device that can be switched.
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
    units: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    in_flight: dict[str, Attempt] = field(default_factory=dict)
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
        # A command that has switched a device off must be able to switch it on.
        if self.in_flight or any(lane.is_cycling for lane in self.lanes.values()):
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
        self.in_flight[task_id] = attempt

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
        if not attempts and self.work.plan.hosts.takeover and not lane.is_given_up:
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
        rules=RetryRules(
            max_attempts=work.plan.limits.max_attempts, host_wait_s=work.plan.hosts.wait_s
        ),
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
        units=units_of({name: work.places[name] for name in lanes}),
    )


Assignment = tuple[str, tuple[Attempt, ...]]
"""A device, and the attempts that it starts together."""


def next_assignments(state: DispatchState, now_s: float) -> Iterator[Assignment]:
    """Yields the devices that may start attempts now, and these; each device at most once.

    A device that needs quiet runs alone on its host. Among the devices of a host, the one that
    waited longest is served first. If that device needs quiet, nothing new starts on the host until
    its running tasks have ended. So neither kind of device starves the other.
    """
    off = switching(state.lanes, state.units)
    for names in state.hosts:
        yield from _host_assignments([state.lanes[name] for name in names], off, now_s)


def _host_assignments(lanes: list[Lane], off: set[str], now_s: float) -> list[Assignment]:
    running = [lane for lane in lanes if lane.running]
    idle = [lane for lane in lanes if not lane.running and lane.device not in off]
    waiting = [lane for lane in idle if lane.has_pending]
    if not waiting or any(lane.needs_quiet for lane in running):
        return []
    chosen: list[Assignment] = []
    for lane in sorted(waiting, key=lambda lane: (lane.turn, lane.device)):
        attempts = lane.next_ready(now_s)
        if not attempts:
            continue
        if not lane.needs_quiet:
            chosen.append((lane.device, attempts))
            continue
        if not running and not chosen:
            chosen.append((lane.device, attempts))
        break
    return chosen

"""Hosts, devices and a disk around the product's own `step`; a test makes things happen to them.

It decides nothing that the product decides: it does what actions ask for, and checks that each may
be asked for at that moment.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement, Wait
from fleetrank.foundation.vocabulary import ErrorKind, Origin, Status, Tier
from fleetrank.orchestrator.dispatch.decide import messages
from fleetrank.orchestrator.dispatch.decide.lane import RepeatKey, key_of
from fleetrank.orchestrator.dispatch.decide.messages import Action, Event
from fleetrank.orchestrator.dispatch.decide.state import DispatchState, new_state
from fleetrank.orchestrator.dispatch.decide.step import step
from fleetrank.orchestrator.dispatch.decide.tally import Tally
from fleetrank.orchestrator.dispatch.decide.work import SweepWork
from fleetrank.orchestrator.keys import TaskId

T = TypeVar("T")
FACTS = DeviceFacts(
    device_model="Box", tier=Tier.CPU, origin=Origin.SIMULATED, os="Linux", arch="x86_64"
)


def failure(kind: ErrorKind, *, is_transient: bool) -> Failure:
    return Failure(kind=kind, message=kind.value, remedy="r", is_transient=is_transient)


HOST_LOST = failure(ErrorKind.HOST_LOST, is_transient=True)
NOT_FIT = replace(
    failure(ErrorKind.UNFIT_CONDITIONS, is_transient=True),
    wait=Wait(ask_again_s=10.0, limit_s=600.0),
)
INTERRUPTED = failure(ErrorKind.INTERRUPTED, is_transient=True)


def result(task_id: str, why: Failure | None) -> Measurement:
    status = Status.OK if why is None else Status.FAILED
    return Measurement(task_id=task_id, status=status, origin=Origin.SIMULATED, failure=why)


def repeat_of(task_id: str) -> RepeatKey:
    found = TaskId.parse(task_id)
    assert found is not None
    return found.cell_key, found.repeat


@dataclass(frozen=True)
class Row:
    """One row; `task_id` is `None` if the attempt was not started."""

    key: RepeatKey
    attempt: int
    failure: Failure | None
    task_id: str | None
    latency_ns: int | None = None


@dataclass
class World:
    """What lies outside of the driver, and what each driver has done.

    `working` are tasks that hosts run, also those that the driver believes lost; `owed` are those
    that the driver waits for; `kept` are results that no driver has acknowledged. `not_fit` are
    answers of devices that ask for time; a host has them until it gets the task again.
    """

    work: SweepWork
    latency_of: Callable[[RepeatKey], int] | None = None
    state: DispatchState = field(init=False)
    now_s: float = 0.0
    down: set[str] = field(default_factory=set)
    working: dict[str, str] = field(default_factory=dict)
    kept: dict[str, Measurement] = field(default_factory=dict)
    not_fit: dict[str, Measurement] = field(default_factory=dict)
    owed: dict[str, str] = field(default_factory=dict)
    delivered: set[str] = field(default_factory=set)
    decided: set[str] = field(default_factory=set)
    probing: set[str] = field(default_factory=set)
    switching: set[str] = field(default_factory=set)
    n_switched: Counter[str] = field(default_factory=Counter)
    written: list[Row] = field(default_factory=list)
    pending: list[Row] = field(default_factory=list)
    n_synced: int = 0
    is_full: bool = False
    submitted: set[str] = field(default_factory=set)
    tries: Counter[tuple[RepeatKey, str]] = field(default_factory=Counter)
    ends: Counter[RepeatKey] = field(default_factory=Counter)
    valid: set[RepeatKey] = field(default_factory=set)
    actions: list[Action] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        return [*self.written, *self.pending]

    def begin(self) -> None:
        """A new driver: it knows the journal and what reachable hosts answer."""
        tally = Tally()
        for row in self.written:
            tally.count(row.key, row.attempt, row.failure)
            if row.latency_ns is not None:
                tally.time(row.key, row.latency_ns)
        self.pending.clear()
        for fields in (self.submitted, self.tries, self.ends, self.probing, self.decided):
            fields.clear()
        self.switching.clear()
        self.n_switched.clear()
        facts = {name: FACTS for name in self.work.places if self.is_up(name)}
        self.state = new_state(self.work, tally, facts, self.now_s)
        running = {t: device for t, device in self.working.items() if self.is_up(device)}
        self.owed = running
        self.delivered = {t for t in self.kept if self.is_up(self.device_of(t))}
        self.note_valid(self.delivered)
        offered = [self.kept[t] for t in sorted(self.delivered)]
        self.feed(messages.Began(now_s=self.now_s, in_flight=running, offered=offered))
        self.owed = {task_id: one.device for task_id, one in self.state.in_flight.items()}

    def feed(self, event: Event) -> tuple[Action, ...]:
        actions = step(self.state, event)
        self.actions += actions
        for action in actions:
            self.carry_out(action)
        return actions

    def carry_out(self, action: Action) -> None:
        match action:
            case messages.Submit():
                self.submit(action)
            case messages.Store():
                self.store(action)
            case messages.StoreUntried():
                key = key_of(action.attempt)
                assert key not in {repeat_of(task_id) for task_id in self.owed}
                self.ends[key] += 1
                self.write(Row(key, action.attempt.number, action.failure, None))
            case messages.Probe():
                assert action.device not in self.probing, "two probes of one device"
                assert not self.is_off(action.device), "probed while it has no power"
                self.probing.add(action.device)
            case messages.CyclePower():
                self.switch(action.device)
            case messages.Sync():
                self.sync()
            case messages.Acknowledge():
                self.acknowledge(action)
            case messages.Interrupt():
                for task_id in self.working:
                    self.kept[task_id] = result(task_id, INTERRUPTED)
                self.working.clear()

    def unit(self, device: str) -> set[str]:
        """The devices that lose power with this one."""
        ties = self.work.places[device].ties | {device}
        return {name for name, one in self.work.places.items() if (one.ties | {name}) & ties}

    def is_off(self, device: str) -> bool:
        return any(device in self.unit(one) for one in self.switching)

    def switch(self, device: str) -> None:
        assert not self.is_off(device), "switched twice at a time"
        assert not self.unit(device) & {*self.owed.values(), *self.probing}, "it is in use"
        assert not self.state.is_stopping, "nothing starts after a stop"
        self.switching.add(device)
        for name in self.unit(device):
            self.n_switched[name] += 1
            assert self.n_switched[name] <= 2, "switched too often"

    def end_switch(self, device: str, error: str | None = None) -> None:
        self.switching.remove(device)
        self.feed(messages.Switched(now_s=self.now_s, device=device, error=error))

    def submit(self, action: messages.Submit) -> None:
        task_id, device = action.task.task_id, action.device
        key, lane = repeat_of(task_id), self.state.lanes[action.device]
        assert not self.state.is_stopping, "nothing starts after a stop"
        assert not self.is_off(device), "started while it has no power"
        here = {t for t, on in self.owed.items() if on == device}
        assert here <= set(action.task.members), "two tasks on one device that are no round"
        assert task_id not in self.submitted | self.delivered, "a task id is used twice"
        assert key not in {repeat_of(t) for t in self.owed}, "a repeat runs twice"
        assert not any(row.key == key and row.failure is None for row in self.rows), "measured"
        beside = [self.state.lanes[d] for d in self.owed.values() if d != device]
        beside = [other for other in beside if other.host == lane.host]
        assert not beside or not any(one.needs_quiet for one in (lane, *beside)), "not quiet"
        self.submitted.add(task_id)
        self.not_fit.pop(task_id, None)
        self.tries[key, device] += 1
        assert self.tries[key, device] <= self.work.plan.limits.max_attempts, "tried too often"
        self.owed[task_id] = device
        if self.is_up(device) and task_id not in self.kept:
            self.working[task_id] = device

    def store(self, action: messages.Store) -> None:
        key, task_id = key_of(action.attempt), action.measurement.task_id
        if not action.will_retry and not self.state.is_stopping:
            # After a stop nothing is retried, and a late result may still replace a failure.
            self.ends[key] += 1
        if action.measurement.failure != HOST_LOST:
            self.decided.add(task_id)
            # The time of a device that was not fit is over: this was an attempt after all.
            self.tries[key, action.device] += task_id in self.not_fit
        latency_ns = action.measurement.latency_ns
        self.write(Row(key, action.attempt.number, action.measurement.failure, task_id, latency_ns))

    def write(self, row: Row) -> None:
        for other in self.rows:
            assert (other.key, other.attempt) != (row.key, row.attempt), "two rows of one attempt"
            assert other.key != row.key or other.failure or row.failure, "two valid rows"
        assert self.ends[row.key] <= 1, "a repeat ends twice"
        self.pending.append(row)
        self.flush()

    def flush(self) -> bool:
        if self.pending and self.is_full:
            self.feed(messages.StoreFailed(now_s=self.now_s, message="the disk is full"))
            return False
        self.written += self.pending
        self.pending.clear()
        return True

    def sync(self) -> None:
        if self.flush():
            self.n_synced = len(self.written)
            self.feed(messages.Synced(now_s=self.now_s))

    def acknowledge(self, action: messages.Acknowledge) -> None:
        safe = self.written[: self.n_synced]
        for task_id in action.task_ids:
            is_over = self.not_fit.pop(task_id, None) is not None
            assert task_id in self.delivered or is_over, "acknowledged before it arrived"
            found, key = self.kept.pop(task_id, None), repeat_of(task_id)
            if found is not None and found.status is Status.OK:
                assert any(row.key == key and row.failure is None for row in safe), "result lost"

    def is_up(self, device: str) -> bool:
        return self.work.places[device].host not in self.down

    def device_of(self, task_id: str) -> str:
        found = TaskId.parse(task_id)
        assert found is not None
        return found.taker or self.state.cells[found.cell_key].device

    def finish(self, task_id: str, why: Failure | None) -> None:
        """A host ends a task and keeps its result."""
        del self.working[task_id]
        found = result(task_id, why)
        if self.latency_of is not None and why is None:
            found = replace(found, samples_ns=(self.latency_of(repeat_of(task_id)),))
        self.kept[task_id] = found

    def ask_for_time(self, task_id: str, why: Failure = NOT_FIT) -> None:
        """A device is not fit: its host ends the task, and tries nothing."""
        del self.working[task_id]
        self.not_fit[task_id] = result(task_id, why)

    def answer_not_fit(self, task_ids: list[str]) -> None:
        """Such answers of reachable hosts reach the driver; again, if a reply was lost."""
        ready = [t for t in task_ids if self.is_up(self.device_of(t))]
        for task_id in ready:
            if (device := self.owed.pop(task_id, None)) is not None:
                # It may be asked again with the same task, and no attempt is used up. If this was
                # the last time, a row of the attempt follows.
                self.submitted.discard(task_id)
                self.tries[repeat_of(task_id), device] -= 1
        found = [self.not_fit[task_id] for task_id in ready]
        self.feed(messages.Arrived(now_s=self.now_s, measurements=found))

    def arrive(self, task_ids: list[str]) -> None:
        """Results of reachable hosts reach the driver; again, if a reply was lost."""
        ready = [t for t in task_ids if t in self.kept and self.is_up(self.device_of(t))]
        for task_id in ready:
            self.owed.pop(task_id, None)
        self.delivered |= set(ready)
        self.note_valid(ready)
        found = [self.kept[task_id] for task_id in ready]
        self.feed(messages.Arrived(now_s=self.now_s, measurements=found))

    def note_valid(self, task_ids: object) -> None:
        self.valid |= {repeat_of(t) for t in task_ids if self.kept[t].status is Status.OK}

    def fail(self, task_ids: list[str], why: Failure) -> None:
        """The executor gives tasks up; their hosts may still run them."""
        for task_id in task_ids:
            device = self.owed.pop(task_id)
            if why.kind is ErrorKind.HOST_LOST:
                # Its host's fault: no attempt is used up.
                self.tries[repeat_of(task_id), device] -= 1
            else:
                self.delivered.add(task_id)
        found = [result(task_id, why) for task_id in task_ids]
        self.feed(messages.Arrived(now_s=self.now_s, measurements=found))

    def tick(self, now_s: float | None = None) -> list[str]:
        """Devices that start."""
        self.now_s = self.now_s if now_s is None else now_s
        actions = self.feed(messages.Tick(now_s=self.now_s))
        return [action.device for action in actions if isinstance(action, messages.Submit)]

    def task_on(self, device: str) -> str:
        (task_id,) = [task_id for task_id, on in self.owed.items() if on == device]
        return task_id

    def end(self, device: str, why: Failure | None = None, waited_s: float | None = None) -> None:
        """The task of a device ends, and its result arrives."""
        task_id = self.task_on(device)
        self.finish(task_id, why)
        self.kept[task_id] = replace(self.kept[task_id], waited_s=waited_s)
        self.arrive([task_id])

    def announced(self, kind: type[T]) -> list[T]:
        events = [one.event for one in self.actions if isinstance(one, messages.Announce)]
        return [event for event in events if isinstance(event, kind)]

    def answer(self, device: str, why: Failure | None) -> None:
        self.probing.remove(device)
        answer = (HOST_LOST if not self.is_up(device) else why) or FACTS
        self.feed(messages.Probed(now_s=self.now_s, device=device, answer=answer))

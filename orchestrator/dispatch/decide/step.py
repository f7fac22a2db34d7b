"""The one decision function of dispatch: an event comes in, actions come out.

It reads no clock, file or random number and starts no thread: time comes with the events. The
control loop carries out the actions and decides nothing.
"""

import zlib
from collections.abc import Iterator
from dataclasses import replace

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.foundation.vocabulary import Status
from fleetrank.orchestrator.dispatch.decide import messages, notices, retry
from fleetrank.orchestrator.dispatch.decide.lane import key_of
from fleetrank.orchestrator.dispatch.decide.messages import Action, Event, Store, StoreUntried
from fleetrank.orchestrator.dispatch.decide.state import DispatchState, next_assignments
from fleetrank.orchestrator.dispatch.decide.work import (
    attempts_left,
    canary_of,
    failed_attempts,
    task_id_of,
    task_of,
)
from fleetrank.orchestrator.identity.cells import Attempt, Cell
from fleetrank.orchestrator.progress.events import Notice, RepeatStarted
from fleetrank.orchestrator.progress.wording import STOPPING

_GRACE_S = 15.0
"""After 'stop now' the sweep waits this long for its workers and then ends without them."""
_SYNC_S = 0.2
"""Rows of this period share one sync; until then a host keeps its measurements anyway."""
_PUBLISH_S = 60.0
"""Parquet readers see a row after at most this time; writing a part takes under a second."""


def step(state: DispatchState, event: Event) -> tuple[Action, ...]:
    """Takes one event into the state; returns the actions to carry out, in this order."""
    actions = tuple(_actions(state, event))
    if any(isinstance(action, Store | StoreUntried | messages.Announce) for action in actions):
        state.announced_s = event.now_s
    return actions


def _actions(state: DispatchState, event: Event) -> Iterator[Action]:
    match event:
        case messages.Tick():
            yield from _tick(state, event.now_s)
        case messages.Arrived():
            yield from _arrived(state, event)
        case messages.Synced():
            yield from _synced(state, event.now_s)
        case messages.Probed():
            yield from _probed(state, event)
        case messages.StopPressed():
            yield from _stop_pressed(state, event)
        case messages.StoreFailed():
            yield from _store_failed(state, event)
        case messages.Began():
            yield from _began(state, event)
        case messages.Ended():
            yield from _ended(state)


def _began(state: DispatchState, event: messages.Began) -> Iterator[Action]:
    """Continues after an earlier driver: adopts its running attempts and its stored results.

    An attempt that it started and did not store is stored under the same attempt number.
    """
    for task_id, device in event.in_flight.items():
        attempt = state.attempt_of(task_id)
        if attempt is not None and device in state.lanes:
            _adopt_running(state, task_id, device, attempt)
    plan, failures = state.work.plan, state.work.failures
    for attempt, failure in failed_attempts(plan, failures, state.tally):
        if not state.is_running(key_of(attempt)):
            yield _untried(state, attempt, failure)
    for measurement in event.offered:
        yield from _finished(state, measurement, event.now_s)
    state.refill_all()


def _adopt_running(state: DispatchState, task_id: str, device: str, attempt: Attempt) -> None:
    """Waits for a task of an earlier driver; if its repeat needs it no more, it will be late."""
    key = key_of(attempt)
    is_needed = not state.tally.is_finished(key) and not state.is_running(key)
    if is_needed and state.lanes[device].running is None:
        # The earlier driver may have stored this attempt as lost with its host.
        number = max(attempt.number, state.tally.next_attempt(key))
        state.start(task_id, device, replace(attempt, number=number), None)
        state.queues.leave_out(key)


def _tick(state: DispatchState, now_s: float) -> Iterator[Action]:
    if state.interrupted_s is not None and now_s - state.interrupted_s > _GRACE_S:
        state.is_abandoned = True
    if not state.is_stopping:
        for lane in state.lanes.values():
            if lane.probe_at_s is not None and lane.probe_at_s <= now_s and not lane.is_probing:
                state.lanes[lane.device] = replace(lane, is_probing=True)
                yield messages.Probe(device=lane.device)
        for device, attempt in next_assignments(state, now_s):
            yield from _started(state, device, attempt, now_s)
    if (notice := notices.silence(state, now_s)) is not None:
        yield messages.Announce(event=notice)


def _started(state: DispatchState, device: str, attempt: Attempt, now_s: float) -> Iterator[Action]:
    state.start(task_id_of(state.work, attempt), device, attempt, now_s)
    state.refill(device)
    task = task_of(state.work, attempt, canary_of(state.work, state.lanes[device]))
    yield messages.Submit(device=device, task=task)
    place = state.work.places[device]
    started = RepeatStarted(
        device=device,
        host=place.host,
        label=attempt.repeat.cell.label,
        repeat=attempt.repeat.index,
        attempt=attempt.number,
        origin=place.origin,
    )
    yield messages.Announce(event=started)


def _arrived(state: DispatchState, event: messages.Arrived) -> Iterator[Action]:
    for measurement in event.measurements:
        yield from _finished(state, measurement, event.now_s)
    # Syncing and rewriting wait until no measurement runs on this host.
    is_quiet = all(state.lanes[device].running is None for device in state.quiet_here)
    if is_quiet and event.now_s - state.synced_s >= _SYNC_S:
        yield messages.Sync()
        if event.now_s - state.published_s >= _PUBLISH_S:
            state.published_s = event.now_s
            yield messages.Publish()


def _finished(state: DispatchState, measurement: Measurement, now_s: float) -> Iterator[Action]:
    device = state.in_flight.pop(measurement.task_id, None)
    lane = None if device is None else state.lanes[device]
    if device is None or lane is None or lane.running is None:
        yield from _late(state, measurement)
        return
    attempt, failure = lane.running, measurement.failure
    lane, will_retry = retry.after_result(
        lane,
        failure,
        rules=state.rules,
        now_s=now_s,
        jitter=_jitter(state, measurement.task_id) if failure is not None else 0.0,
    )
    is_set_aside = lane.probe_at_s is not None and state.lanes[device].probe_at_s is None
    state.lanes[device] = lane
    if retry.is_host_lost(failure):
        for other in [other for other in state.lanes.values() if other.host == lane.host]:
            state.lanes[other.device] = retry.after_host_loss(other, state.rules, now_s)
    if not retry.is_host_lost(failure):
        # Its host may still finish it: what it measured is acknowledged when it has arrived.
        state.taken.append(measurement.task_id)
    yield _stored(state, device, attempt, measurement, will_retry=will_retry)
    for held in state.held.pop(key_of(attempt), ()):
        yield from _late(state, held)
    yield from _passed_over(state, attempt.repeat.cell)
    if failure is not None and (is_set_aside or retry.is_host_lost(failure)):
        yield messages.Announce(event=notices.set_aside(device, failure))


def _late(state: DispatchState, measurement: Measurement) -> Iterator[Action]:
    """Takes a result that no running attempt waits for: of an earlier driver, or believed lost.

    It is held while another attempt at its repeat runs, because it can still be used if that one
    fails. Its host keeps it too, because it is acknowledged only when it is stored or discarded.
    """
    attempt = state.attempt_of(measurement.task_id)
    if attempt is not None and state.is_running(key_of(attempt)):
        state.held.setdefault(key_of(attempt), []).append(measurement)
    else:
        yield from _adopted(state, attempt, measurement)


def _adopted(
    state: DispatchState, attempt: Attempt | None, measurement: Measurement
) -> Iterator[Action]:
    """Stores a late result that can still be used, and discards the others.

    A valid measurement is stored if its repeat has none yet, even if a later attempt failed. A
    failed measurement is stored if its attempt has no row: an earlier driver started it and died.
    """
    if not retry.is_host_lost(measurement.failure):
        state.taken.append(measurement.task_id)
    if attempt is None:
        return
    key, tally = key_of(attempt), state.tally
    number = tally.next_attempt(key)
    is_good = measurement.status is Status.OK and not tally.is_measured(key)
    if is_good or attempt.number >= number:
        use = replace(attempt, number=number)
        yield _stored(state, use.device, use, measurement, will_retry=True)
        yield from _passed_over(state, use.repeat.cell)
        state.revise(lambda other: other == key)
        state.refill_all()


def _passed_over(state: DispatchState, cell: Cell) -> Iterator[Action]:
    """Ends the remaining repeats of a cell after a failure that every repeat would have."""
    failure = state.tally.verdict(cell.cell_key)
    if failure is None:
        return
    for attempt in attempts_left(state.work.plan, cell, state.tally):
        # What runs on another device may still be measured.
        if not state.is_running(key_of(attempt)):
            yield _untried(state, attempt, failure)
    state.revise(lambda key: key[0] == cell.cell_key)
    state.refill_all()


def _untried(state: DispatchState, attempt: Attempt, failure: Failure) -> StoreUntried:
    state.tally.count(key_of(attempt), attempt.number, failure)
    facts = state.facts.get(attempt.repeat.cell.device)
    return StoreUntried(attempt=attempt, failure=failure, facts=facts)


def _stored(
    state: DispatchState,
    device: str,
    attempt: Attempt,
    measurement: Measurement,
    *,
    will_retry: bool,
) -> Store:
    facts = state.facts.get(device)
    if facts is None:
        # A failure before the device was reached has no origin either.
        measurement = replace(measurement, origin=state.work.places[device].origin)
    flags = attempt.flags(measurement.flags)
    state.tally.count(key_of(attempt), attempt.number, measurement.failure, flags)
    return Store(
        device=device,
        attempt=attempt,
        measurement=measurement,
        facts=facts,
        will_retry=will_retry and not state.is_stopping,
    )


def _probed(state: DispatchState, event: messages.Probed) -> Iterator[Action]:
    lane = state.lanes[event.device]
    if state.is_stopping:
        state.lanes[event.device] = replace(lane, is_probing=False)
        return
    failure = event.answer if isinstance(event.answer, Failure) else None
    lane = retry.after_probe(lane, failure, rules=state.rules, now_s=event.now_s)
    state.lanes[event.device] = lane
    if isinstance(event.answer, DeviceFacts):
        state.facts[event.device] = event.answer
        yield messages.Announce(event=notices.answers_again(event.device))
        state.refill(event.device)
    elif lane.is_given_up:
        yield messages.Announce(event=notices.given_up(event.device, event.answer))
        state.refill_all()


def _stop_pressed(state: DispatchState, event: messages.StopPressed) -> Iterator[Action]:
    if not state.is_stopping:
        state.is_stopping = True
        yield messages.Announce(event=Notice(level="info", message=STOPPING))
    if event.is_now and state.interrupted_s is None:
        state.interrupted_s = event.now_s
        yield messages.Interrupt()


def _store_failed(state: DispatchState, event: messages.StoreFailed) -> Iterator[Action]:
    state.synced_s = event.now_s
    state.is_stopping = True
    if not state.has_store_failed:
        state.has_store_failed = True
        yield messages.Announce(event=notices.store_failed(event.message))


def _synced(state: DispatchState, now_s: float) -> Iterator[Action]:
    state.synced_s = now_s
    if state.taken and not state.has_store_failed:
        yield messages.Acknowledge(task_ids=tuple(state.taken))
        state.taken.clear()


def _ended(state: DispatchState) -> Iterator[Action]:
    held, state.held = state.held, {}
    for measurement in (one for measurements in held.values() for one in measurements):
        # Also if the attempt that it was held for has not ended: its worker is abandoned.
        yield from _adopted(state, state.attempt_of(measurement.task_id), measurement)
    yield messages.Sync()


def _jitter(state: DispatchState, task_id: str) -> float:
    """A number in [0, 1) that is the same in each run, so that a run can be repeated exactly."""
    return zlib.crc32(f"{state.work.plan.seed}/{task_id}".encode()) / 2**32

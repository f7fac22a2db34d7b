"""The one decision function of dispatch: an event comes in, actions come out.

It reads no clock, file or random number and starts no thread: time comes with the events. The
control loop carries out the actions and decides nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.orchestrator.dispatch.decide import messages, notices, power, retry
from fleetrank.orchestrator.dispatch.decide.arrivals import adopted, finished, untried
from fleetrank.orchestrator.dispatch.decide.lane import key_of
from fleetrank.orchestrator.dispatch.decide.messages import Action, Event, Store, StoreUntried
from fleetrank.orchestrator.dispatch.decide.state import DispatchState, next_assignments
from fleetrank.orchestrator.dispatch.decide.work import (
    canary_of,
    failed_attempts,
    task_id_of,
    tasks_of,
)
from fleetrank.orchestrator.identity import Attempt
from fleetrank.orchestrator.progress_events import DeviceWaits, Notice, RepeatStarted
from fleetrank.orchestrator.progress_words import STOPPING

_GRACE_S = 15.0
"""After 'stop now' the sweep waits this long for its workers and then ends without them."""
_SYNC_S = 0.2
"""Rows of this period share one sync; until then a host keeps its measurements anyway."""
_ASKED_S = 3.0
"""A device that is not fit answers sooner; after this its repeat runs, and the user sees it."""
_NEWS_S = 60.0
"""How often the user is reminded of a device that waits."""
_PUBLISH_S = 60.0
"""Parquet readers see a row after at most this time; writing a part takes under a second."""


def step(state: DispatchState, event: Event) -> tuple[Action, ...]:
    """Takes one event into the state; returns the actions to carry out, in this order."""
    if state.looks is not None:
        state.looks.now_s = event.now_s
    actions = tuple(_without_repetitions(state, _actions(state, event)))
    if any(isinstance(action, Store | StoreUntried | messages.Announce) for action in actions):
        state.announced_s = event.now_s
    return actions


def _without_repetitions(state: DispatchState, actions: Iterator[Action]) -> Iterator[Action]:
    """Leaves out that a device waits if displays show the same reason for less than a minute.

    A reserved device is asked many times a minute.
    """
    for action in actions:
        event = action.event if isinstance(action, messages.Announce) else None
        if isinstance(event, DeviceWaits):
            reason, said_s = state.shown_waits.get(event.device, (None, None))
            # A shorter time is that of another wait.
            is_due = said_s is None or not 0 <= event.waited_s - said_s < _NEWS_S
            is_news = is_due and event.limit_s is not None
            state.shown_waits[event.device] = event.reason, event.waited_s if is_news else said_s
            if is_due or reason != event.reason:
                yield messages.Announce(event=replace(event, is_news=is_news))
            continue
        if isinstance(action, Store):
            state.shown_waits.pop(action.device, None)
        elif isinstance(event, RepeatStarted) and event.device in state.shown_waits:
            state.shown_waits[event.device] = None, state.shown_waits[event.device][1]
        yield action


def _actions(state: DispatchState, event: Event) -> Iterator[Action]:
    yield from _DECISIONS[type(event)](state, event)
    if state.looks is not None:
        yield from (messages.Announce(event=one) for one in state.looks.news())


def _began(state: DispatchState, event: messages.Began) -> Iterator[Action]:
    """Continues after an earlier driver: adopts its running attempts and its stored results.

    An attempt that it started and did not store is stored under the same attempt number.
    """
    for task_id, device in event.in_flight.items():
        attempt = state.attempt_of(task_id)
        if attempt is not None and device in state.lanes:
            _adopt_running(state, task_id, device, attempt)
    plan, failures = state.work.plan, state.work.exports.failures
    for attempt, failure in failed_attempts(plan, failures, state.tally):
        if not state.is_running(key_of(attempt)):
            yield untried(state, attempt, failure)
    for measurement in event.offered:
        yield from finished(state, measurement, event.now_s)
    state.refill_all()


def _adopt_running(state: DispatchState, task_id: str, device: str, attempt: Attempt) -> None:
    """Waits for a task of an earlier driver; if its repeat needs it no more, it will be late."""
    key = key_of(attempt)
    is_needed = not state.tally.is_finished(key) and not state.is_running(key)
    if is_needed:
        # The earlier driver may have stored this attempt as lost with its host.
        number = max(attempt.number, state.tally.next_attempt(key))
        state.start(task_id, device, replace(attempt, number=number), None)
        state.queues.leave_out(key)


def _tick(state: DispatchState, event: messages.Tick) -> Iterator[Action]:
    now_s = event.now_s
    if state.interrupted_s is not None and now_s - state.interrupted_s > _GRACE_S:
        state.is_abandoned = True
    if not state.is_stopping:
        for device, unit in power.due_cycles(state.lanes, state.units):
            state.lanes |= {one.device: power.in_cycle(one) for one in unit}
            yield messages.Announce(event=notices.is_switched(state.lanes[device], now_s))
            yield messages.CyclePower(device=device)
        off = power.switching(state.lanes, state.units)
        for lane in state.lanes.values():
            is_due = lane.probe_at_s is not None and lane.probe_at_s <= now_s
            if is_due and not lane.is_probing and lane.device not in off:
                state.lanes[lane.device] = replace(lane, is_probing=True)
                yield messages.Probe(device=lane.device)
        for device, attempts in next_assignments(state, now_s):
            yield from _started(state, device, attempts, now_s)
    yield from _fit_again(state, now_s)
    if (notice := notices.silence(state, now_s)) is not None:
        yield messages.Announce(event=notice)


def _started(
    state: DispatchState, device: str, attempts: Sequence[Attempt], now_s: float
) -> Iterator[Action]:
    for attempt in attempts:
        state.start(task_id_of(state.work, attempt), device, attempt, now_s)
    state.refill(device)
    canary = canary_of(state.work, state.lanes[device])
    for task in tasks_of(state.work, attempts, canary):
        yield messages.Submit(device=device, task=task)
    if state.lanes[device].rest is None:
        for attempt in attempts:
            yield _announced(state, device, attempt)


def _fit_again(state: DispatchState, now_s: float) -> Iterator[Action]:
    """Announces the repeats of devices that were asked whether they are fit, and are."""
    for lane in state.lanes.values():
        rest, since_s = lane.rest, lane.running_since_s
        if rest is None or rest.is_measuring or since_s is None or now_s < since_s + _ASKED_S:
            continue
        state.lanes[lane.device] = replace(lane, rest=replace(rest, is_measuring=True))
        for attempt in lane.running:
            yield _announced(state, lane.device, attempt)


def _announced(state: DispatchState, device: str, attempt: Attempt) -> messages.Announce:
    return messages.Announce(event=RepeatStarted(**messages.of_repeat(state.work, device, attempt)))


def _arrived(state: DispatchState, event: messages.Arrived) -> Iterator[Action]:
    for measurement in event.measurements:
        yield from finished(state, measurement, event.now_s)
    if state.looks is not None:
        state.refill_all()
    # Syncing and rewriting wait until no measurement runs on this host.
    is_quiet = not any(state.lanes[device].running for device in state.quiet_here)
    if is_quiet and event.now_s - state.synced_s >= _SYNC_S:
        yield messages.Sync()
        if event.now_s - state.published_s >= _PUBLISH_S:
            state.published_s = event.now_s
            yield messages.Publish()


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
        waits = notices.waits_for_resume(lane, event.answer, event.now_s)
        yield messages.Announce(event=waits)
        state.refill_all()
    elif event.answer.wait is not None:
        waits = messages.waits_for_user(lane, event.answer, event.answer.wait, event.now_s)
        yield messages.Announce(event=waits)


def _host_joined(state: DispatchState, event: messages.HostJoined) -> Iterator[Action]:
    """Takes back devices that were given up, if the plan allows it; else says how to use them."""
    lanes = [one for one in state.lanes.values() if one.host == event.host and one.is_given_up]
    if not lanes or state.is_stopping:
        return
    is_used = state.work.plan.hosts.join
    for lane in lanes if is_used else ():
        state.lanes[lane.device] = retry.after_join(lane, event.now_s)
    names = [lane.device for lane in lanes]
    yield messages.Announce(event=notices.joined(event.host, names, is_used=is_used))


def _switched(state: DispatchState, event: messages.Switched) -> Iterator[Action]:
    for name in state.units[event.device]:
        state.lanes[name] = power.after_cycle(state.lanes[name], event.error, event.now_s)
    cycled = notices.power_cycled(state.lanes[event.device], event.error)
    yield messages.Announce(event=cycled)


def _stop_pressed(state: DispatchState, event: messages.StopPressed) -> Iterator[Action]:
    if not state.is_stopping:
        state.is_stopping = True
        yield messages.Announce(event=Notice(level="info", message=STOPPING))
        yield messages.FinishRounds()
    if event.is_now and state.interrupted_s is None:
        state.interrupted_s = event.now_s
        yield messages.Interrupt()


def _store_failed(state: DispatchState, event: messages.StoreFailed) -> Iterator[Action]:
    state.synced_s = event.now_s
    state.is_stopping = True
    if not state.has_store_failed:
        state.has_store_failed = True
        yield messages.Announce(event=notices.store_failed(event.message))


def _synced(state: DispatchState, event: messages.Synced) -> Iterator[Action]:
    state.synced_s = event.now_s
    if state.taken and not state.has_store_failed:
        yield messages.Acknowledge(task_ids=tuple(state.taken))
        state.taken.clear()


def _ended(state: DispatchState, _event: messages.Ended) -> Iterator[Action]:
    held, state.held = state.held, {}
    for measurement in (one for measurements in held.values() for one in measurements):
        # Also if the attempt that it was held for has not ended: its worker is abandoned.
        yield from adopted(state, state.attempt_of(measurement.task_id), measurement)
    yield messages.Sync()


_DECISIONS: Mapping[type[Event], Callable[[DispatchState, Any], Iterator[Action]]] = {
    messages.Began: _began, messages.Arrived: _arrived, messages.Probed: _probed,
    messages.HostJoined: _host_joined, messages.Switched: _switched, messages.Tick: _tick,
    messages.StopPressed: _stop_pressed, messages.StoreFailed: _store_failed,
    messages.Synced: _synced, messages.Ended: _ended,
}  # fmt: skip
"""What is decided when an event comes."""

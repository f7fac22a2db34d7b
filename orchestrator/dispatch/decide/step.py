"""The one decision function of dispatch: an event comes in, actions come out.

It reads no clock, file or random number and starts no thread: time comes with the events. The
control loop carries out the actions and decides nothing.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fleetrank.analysis.weather import RoundVerdict, weather_of_medians
from fleetrank.device_agents.contract.agent import DeviceFacts
from fleetrank.device_agents.contract.measurement import Failure, Measurement, waited_in_vain
from fleetrank.foundation.vocabulary import Status
from fleetrank.orchestrator.dispatch.decide import messages, retry
from fleetrank.orchestrator.dispatch.decide.messages import Action, Event, Store, StoreUntried
from fleetrank.orchestrator.dispatch.decide.retry import Lane, Waiting, key_of
from fleetrank.orchestrator.dispatch.decide.state import (
    DispatchState,
    attempts_left,
    canary_of,
    failed_attempts,
    next_assignments,
    task_id_of,
    tasks_of,
)
from fleetrank.orchestrator.identity import Attempt, Cell
from fleetrank.orchestrator.progress import STOPPING, DeviceWaits, Notice, RepeatStarted
from fleetrank.orchestrator.rows import block_medians

# What a result means: it is stored, held or discarded, and its repeat ends or is tried again.

_DISTURBED_PAUSE_S = 30.0
"""A host keeps its state for tens of seconds: sooner, the next round would meet the same state.
Meanwhile the device measures what is pending."""


def finished(state: DispatchState, measurement: Measurement, now_s: float) -> Iterator[Action]:
    """Takes the result of a task: of a running attempt, or late."""
    device = state.in_flight.pop(measurement.task_id, None)
    lane = None if device is None else state.lanes[device]
    # The number of the attempt may have changed since.
    named = state.attempt_of(measurement.task_id)
    running = () if lane is None or named is None else lane.running
    attempt = next((one for one in running if named and key_of(one) == key_of(named)), None)
    if device is None or lane is None or attempt is None:
        yield from late(state, measurement)
        return
    if measurement.failure is not None and (wait := measurement.failure.wait) is not None:
        asked_s = now_s - (measurement.waited_s or 0.0)
        rested = retry.after_wait(lane, attempt, wait, now_s, asked_s=asked_s)
        if rested is not None:
            yield from _rests(state, rested, attempt, measurement.failure, now_s)
            return
        waited_s = 0.0 if lane.rest is None else now_s - lane.rest.since_s
        in_vain = waited_in_vain(measurement.failure, waited_s)
        measurement = replace(measurement, failure=in_vain, waited_s=waited_s)
    else:
        measurement = _with_rest(lane, measurement)
    failure = measurement.failure
    # A disturbed round is measured again together or not at all: a cell alone shows no ratio.
    is_spare = state.tally.is_measured(key_of(attempt))
    # A number in [0, 1) that is the same in each run, so that a run can be repeated exactly.
    jitter = zlib.crc32(f"{state.work.plan.seed}/{measurement.task_id}".encode()) / 2**32
    lane, will_retry = retry.after_result(
        lane,
        attempt,
        failure,
        rules=replace(state.rules, max_attempts=0) if is_spare else state.rules,
        now_s=now_s,
        jitter=jitter,
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
    yield from _judged(state, device, attempt, measurement, now_s)
    for held in state.held.pop(key_of(attempt), ()):
        yield from late(state, held)
    yield from _passed_over(state, attempt.repeat.cell)
    if failure is not None and (is_set_aside or retry.is_host_lost(failure)):
        yield messages.Announce(event=messages.set_aside(device, failure))
        # Beside the line: displays of devices show it until the device starts again.
        waits = messages.waits(state.lanes[device], failure.message, now_s)
        yield messages.Announce(event=waits)


def _with_rest(lane: Lane, measurement: Measurement) -> Measurement:
    """Adds the rest of the device before the attempt to what the attempt waited on its host."""
    rest, since_s, waited_s = lane.rest, lane.running_since_s, measurement.waited_s
    if rest is None or since_s is None or waited_s is None:
        return measurement
    return replace(measurement, waited_s=waited_s + since_s - rest.since_s)


def _rests(
    state: DispatchState, lane: Lane, attempt: Attempt, failure: Failure, now_s: float
) -> Iterator[Action]:
    """Lets a device rest. Nothing is stored: its attempt has not begun."""
    state.lanes[lane.device] = lane
    yield messages.Announce(event=messages.waits(lane, failure.message, now_s))
    for held in state.held.pop(key_of(attempt), ()):
        yield from late(state, held)


def late(state: DispatchState, measurement: Measurement) -> Iterator[Action]:
    """Takes a result that no running attempt waits for: of an earlier driver, or believed lost.

    It is held while another attempt at its repeat runs, because it can still be used if that one
    fails. Its host keeps it too, because it is acknowledged only when it is stored or discarded.
    A late answer that a device is not fit says nothing about now.
    """
    if measurement.failure is not None and measurement.failure.wait is not None:
        return
    attempt = state.attempt_of(measurement.task_id)
    if attempt is not None and state.is_running(key_of(attempt)):
        state.held.setdefault(key_of(attempt), []).append(measurement)
    else:
        yield from adopted(state, attempt, measurement)


def adopted(
    state: DispatchState, attempt: Attempt | None, measurement: Measurement
) -> Iterator[Action]:
    """Stores a late result that can still be used, and discards the others.

    A valid measurement is stored if its repeat has none yet, even if a later attempt failed. A
    failed measurement is stored if its attempt has no row: an earlier driver started it and died.
    A result of a cell that this run leaves out stays with its host.
    """
    if attempt is None and state.leaves_out(measurement.task_id):
        return
    if not retry.is_host_lost(measurement.failure):
        state.taken.append(measurement.task_id)
    if attempt is None:
        return
    key, tally = key_of(attempt), state.tally
    number = tally.next_attempt(key)
    is_good = measurement.status is Status.OK and not tally.is_measured(key)
    if is_good or attempt.number >= number:
        use = replace(attempt, number=number)
        # A good result ends its repeat, which counts unless it ended before with a failure.
        is_counted = key in state.spent or tally.is_finished(key)
        is_end = is_good and not is_counted
        yield _stored(state, use.device, use, measurement, will_retry=not is_end)
        yield from _passed_over(state, use.repeat.cell)
        state.revise(lambda other: other == key)
        state.refill_all()


def _passed_over(state: DispatchState, cell: Cell) -> Iterator[Action]:
    """Ends the remaining repeats of a cell after a failure that every repeat would have."""
    failure = state.tally.verdict(cell.cell_key)
    if failure is None:
        return
    for attempt in attempts_left(state.work.plan, cell, state.tally):
        # What runs on another device may still be measured, and what has ended ends once.
        if not state.is_running(key_of(attempt)) and key_of(attempt) not in state.spent:
            yield untried(state, attempt, failure)
    state.revise(lambda key: key[0] == cell.cell_key)
    state.refill_all()


def untried(state: DispatchState, attempt: Attempt, failure: Failure) -> StoreUntried:
    """Counts an attempt that fails without being started."""
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
    was_measured = state.tally.is_measured(key_of(attempt))
    if measurement.failure is not None and not will_retry and not was_measured:
        state.spent.add(key_of(attempt))
    state.tally.count(key_of(attempt), attempt.number, measurement.failure)
    if state.looks is not None and measurement.failure is None and measurement.latency_ns:
        state.tally.time(key_of(attempt), measurement.latency_ns)
    return Store(
        device=device,
        attempt=attempt,
        measurement=measurement,
        facts=facts,
        will_retry=was_measured or (will_retry and not state.is_stopping),
    )


def _judged(
    state: DispatchState, device: str, attempt: Attempt, measurement: Measurement, now_s: float
) -> Iterator[Action]:
    """Takes what a device measured; when its round is over, decides whether to measure it again.

    Attempts count as those of failures do: there are at most `max_attempts`. A cell that failed has
    a retry by itself.
    """
    if not state.work.plan.repeats_disturbed:
        return
    found = state.turns.setdefault(device, [])
    if measurement.failure is None and measurement.blocks:
        found.append((attempt, block_medians(measurement)))
    lane = state.lanes[device]
    if lane.running:
        return
    del state.turns[device]
    may_repeat = all(one.n_tries + 1 < state.rules.max_attempts for one, _ in found)
    if not found or not may_repeat or state.is_stopping:
        return
    weather = weather_of_medians([medians for _, medians in found])
    if weather.verdict is not RoundVerdict.DISTURBED:
        return
    again = tuple(
        Waiting(
            attempt=replace(
                one, number=state.tally.next_attempt(key_of(one)), n_tries=one.n_tries + 1
            ),
            ready_s=now_s + _DISTURBED_PAUSE_S,
            asked_in=lane.turn,
        )
        for one, _ in found
    )
    state.lanes[device] = replace(lane, retries=(*lane.retries, *again))
    again_notice = messages.measured_again(device, len(found), weather.reason or "")
    yield messages.Announce(event=again_notice)


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


def _tick(state: DispatchState, now_s: float) -> Iterator[Action]:
    if state.interrupted_s is not None and now_s - state.interrupted_s > _GRACE_S:
        state.is_abandoned = True
    if not state.is_stopping:
        for lane in state.lanes.values():
            if lane.probe_at_s is not None and lane.probe_at_s <= now_s and not lane.is_probing:
                state.lanes[lane.device] = replace(lane, is_probing=True)
                yield messages.Probe(device=lane.device)
        for device, attempts in next_assignments(state, now_s):
            yield from _started(state, device, attempts, now_s)
    yield from _fit_again(state, now_s)
    if (notice := messages.silence(state, now_s)) is not None:
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
    return messages.Announce(event=messages.repeat_started(state.work, device, attempt))


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
        yield messages.Announce(event=messages.answers_again(event.device))
        state.refill(event.device)
    elif lane.is_given_up:
        yield messages.Announce(event=messages.given_up(event.device, event.answer))
        waits = messages.waits_for_resume(lane, event.answer, event.now_s)
        yield messages.Announce(event=waits)
        state.refill_all()
    elif event.answer.wait is not None:
        waits = messages.waits_for_user(lane, event.answer, event.answer.wait, event.now_s)
        yield messages.Announce(event=waits)


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
        yield messages.Announce(event=messages.store_failed(event.message))


def _synced(state: DispatchState, now_s: float) -> Iterator[Action]:
    state.synced_s = now_s
    if state.taken and not state.has_store_failed:
        yield messages.Acknowledge(task_ids=tuple(state.taken))
        state.taken.clear()


def _ended(state: DispatchState) -> Iterator[Action]:
    held, state.held = state.held, {}
    for measurement in (one for measurements in held.values() for one in measurements):
        # Also if the attempt that it was held for has not ended: its worker is abandoned.
        yield from adopted(state, state.attempt_of(measurement.task_id), measurement)
    yield messages.Sync()

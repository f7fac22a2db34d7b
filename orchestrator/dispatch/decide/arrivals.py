"""What a result means: it is stored, held or discarded, and its repeat ends or is tried again."""

import zlib
from collections.abc import Iterator
from dataclasses import replace

from fleetrank.analysis.weather import RoundVerdict, weather_of_medians
from fleetrank.device_agents.contract.failures import waited_in_vain
from fleetrank.device_agents.contract.measurement import Failure, Measurement
from fleetrank.foundation.vocabulary import Status
from fleetrank.orchestrator.dispatch.decide import messages, notices, retry
from fleetrank.orchestrator.dispatch.decide.lane import Lane, Waiting, key_of
from fleetrank.orchestrator.dispatch.decide.messages import Action, Store, StoreUntried
from fleetrank.orchestrator.dispatch.decide.state import DispatchState
from fleetrank.orchestrator.dispatch.decide.work import attempts_left
from fleetrank.orchestrator.identity import Attempt, Cell
from fleetrank.orchestrator.rows import block_medians

_DISTURBED_PAUSE_S = 30.0
"""A host keeps its state for tens of seconds: sooner, the next round would meet the same state.
Meanwhile the device measures what is pending."""


def finished(state: DispatchState, measurement: Measurement, now_s: float) -> Iterator[Action]:
    """Takes the result of a task: of a running attempt, or late."""
    attempt = state.in_flight.pop(measurement.task_id, None)
    if attempt is None:
        yield from late(state, measurement)
        return
    device = attempt.device
    lane = state.lanes[device]
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
    else:
        # Its host may still finish it: what it measured is acknowledged when it has arrived.
        state.taken.append(measurement.task_id)
    yield _stored(state, device, attempt, measurement, will_retry=will_retry)
    yield from _judged(state, device, attempt, measurement, now_s)
    for held in state.held.pop(key_of(attempt), ()):
        yield from late(state, held)
    yield from _passed_over(state, attempt.repeat.cell)
    if failure is not None and (is_set_aside or retry.is_host_lost(failure)):
        yield messages.Announce(event=notices.set_aside(device, failure))
        # Beside the line: displays of devices show it until the device starts again.
        waits = notices.waits(state.lanes[device], failure.message, now_s)
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
    yield messages.Announce(event=notices.waits(lane, failure.message, now_s))
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
    if state.work.plan.hosts.quiet != "retry":
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
    again_notice = notices.measured_again(device, len(found), weather.reason or "")
    yield messages.Announce(event=again_notice)

"""A round that its host disturbed is measured again, if the sweep wants that; both are stored."""

from collections.abc import Iterator
from dataclasses import replace

from fleetrank.analysis.rounds.weather import RoundVerdict, weather_of_medians
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.orchestrator.dispatch.decide.lane import Waiting, key_of
from fleetrank.orchestrator.dispatch.decide.messages import Action, Announce
from fleetrank.orchestrator.dispatch.decide.notices import measured_again
from fleetrank.orchestrator.dispatch.decide.state import DispatchState
from fleetrank.orchestrator.identity.cells import Attempt
from fleetrank.orchestrator.rows.measured_columns import block_medians

_PAUSE_S = 30.0
"""A host keeps its state for tens of seconds: sooner, the next round would meet the same state.
Meanwhile the device measures what is pending."""


def judged(
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
            ready_s=now_s + _PAUSE_S,
            asked_in=lane.turn,
        )
        for one, _ in found
    )
    state.lanes[device] = replace(lane, retries=(*lane.retries, *again))
    yield Announce(event=measured_again(device, len(found), weather.reason or ""))

"""What a device that was given up leaves to an equal one, where the sweep allows it: pure."""

from dataclasses import replace

from fleetrank.device_agents.contract.device_facts import DeviceFacts
from fleetrank.orchestrator.dispatch.decide.state import DispatchState, with_lane


def are_equal(one: DeviceFacts, other: DeviceFacts) -> bool:
    """Whether two devices are of one make: what one measures stands for the other."""
    return _make(one) == _make(other)


def handed_over(state: DispatchState, giver: str, taker: str) -> DispatchState:
    """The state after one attempt that waited for `giver` waits for `taker`, which had none.

    `giver` is given up, so that none of its attempts runs; nothing changes when none waits.
    """
    source = state.lanes[giver]
    if source.fresh is not None:
        attempt, source = source.fresh, replace(source, fresh=None)
    elif source.retries:
        attempt, source = source.retries[0].attempt, replace(source, retries=source.retries[1:])
    else:
        return state
    # Its tries were made on another device.
    attempt = replace(attempt, n_tries=0, taker=taker)
    return with_lane(with_lane(state, source), replace(state.lanes[taker], fresh=attempt))


def _make(facts: DeviceFacts) -> tuple[object, ...]:
    return (
        facts.device_model, facts.tier, facts.origin, facts.os, facts.arch, facts.cpu_model,
        facts.logical_cores,
    )  # fmt: skip

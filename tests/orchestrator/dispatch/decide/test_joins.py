"""A host that joins after its devices were given up."""

from dataclasses import replace

import pytest
from dispatch_bench import new_work
from dispatch_world import World

from fleetrank.orchestrator.dispatch.decide import messages
from fleetrank.orchestrator.identity import HostRules
from fleetrank.orchestrator.progress_events import Notice


def world_without(host: str, *, join: bool) -> World:
    """Three devices, two of them on a host that is not there and was waited for in vain."""
    work = new_work({"d0": False, "d1": False, "d2": False}, repeats=3)
    places = {
        name: replace(place, host="g" if name == "d0" else host)
        for name, place in work.places.items()
    }
    plan = replace(work.plan, hosts=HostRules(wait_s=5.0, join=join))
    world = World(replace(work, places=places, plan=plan))
    world.down.add(host)
    world.begin()
    for now_s in (0.0, 6.0):
        world.tick(now_s)
        for device in ("d1", "d2"):
            world.answer(device, None)
    assert world.state.lanes["d1"].is_given_up
    world.down.clear()
    return world


def said(world: World, host: str) -> list[str]:
    world.actions.clear()
    world.feed(messages.HostJoined(now_s=world.now_s, host=host))
    return [notice.message for notice in world.announced(Notice)]


def test_its_devices_are_used_at_once_if_the_sweep_allows_it() -> None:
    world = world_without("h", join=True)
    assert "d1, d2" in said(world, "h")[0]
    world.tick(world.now_s)
    for device in ("d1", "d2"):
        world.answer(device, None)
    assert world.tick() == ["d1", "d2"]
    assert said(world, "h") == [], "they are in use"


def test_the_command_that_uses_it_is_told_otherwise() -> None:
    world = world_without("h", join=False)
    assert "with=h" in said(world, "h")[0]
    assert not world.tick(world.now_s + 60.0)
    assert said(world, "g") == [], "its device was never given up"


@pytest.mark.parametrize("join", [True, False])
def test_nothing_starts_after_a_stop(join: bool) -> None:
    world = world_without("h", join=join)
    world.feed(messages.StopPressed(now_s=world.now_s, is_now=False))
    assert said(world, "h") == []

"""A device that is lost twice in a row is switched off and on, and twice at most."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from dispatch_bench import new_work
from dispatch_world import HOST_LOST, NOT_FIT, World, failure

from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.dispatch.decide import messages
from fleetrank.orchestrator.progress_events import PowerCycled

NewWorld = Callable[..., World]
LOST = failure(ErrorKind.DEVICE_LOST, is_transient=True)
FOREVER = failure(ErrorKind.DEVICE_LOST, is_transient=False)
CRASHED = failure(ErrorKind.CRASHED, is_transient=False)


@pytest.fixture
def new_world() -> NewWorld:
    """Devices of one host; those with one unit share a reservation, and d0 can be switched."""

    def build(*units: str, repeats: int = 5) -> World:
        work = new_work({f"d{n}": False for n, _ in enumerate(units)}, repeats=repeats)
        places = {
            name: replace(place, has_power=name == "d0", ties=frozenset({name, unit}))
            for (name, place), unit in zip(work.places.items(), units, strict=True)
        }
        world = World(replace(work, places=places))
        world.begin()
        return world

    return build


def end_each(world: World, *ends: Failure | None) -> None:
    """Measures on d0 as often as there are ends, half a minute apart."""
    for end in ends:
        world.tick(world.now_s + 30.0)
        world.end("d0", end)
    world.tick()


@pytest.mark.parametrize("end", [None, CRASHED])
def test_two_losses_in_a_row_switch_and_an_answer_between_them_does_not(
    new_world: NewWorld, end: Failure | None
) -> None:
    world = new_world("a")
    end_each(world, LOST, end, LOST)
    assert not world.switching
    world = new_world("a")
    end_each(world, LOST, LOST)
    assert world.switching == {"d0"}
    assert world.tick(world.now_s + 600.0) == [], "nothing starts meanwhile"
    world.end_switch("d0")
    assert world.tick() == ["d0"]
    (told,) = world.announced(PowerCycled)
    assert (told.device, told.number, told.error) == ("d0", 1, None)


@pytest.mark.parametrize("why", [HOST_LOST, FOREVER])
def test_a_lost_host_and_a_wrong_device_file_do_not_switch(
    new_world: NewWorld, why: Failure
) -> None:
    world = new_world("a")
    for _ in range(3):
        world.tick(world.now_s + 30.0)
        for device in sorted(world.probing):
            world.answer(device, None)
        world.tick()
        world.fail([world.task_on("d0")], why)
    assert not world.switching


def test_it_waits_until_its_unit_is_idle_and_other_devices_go_on(new_world: NewWorld) -> None:
    world = new_world("board", "board", "phone")
    assert world.tick(0.0) == ["d0", "d1", "d2"]
    world.end("d0", LOST)
    assert world.tick(30.0) == ["d0"]
    world.end("d0", LOST)
    world.end("d2")
    assert world.tick(60.0) == ["d2"]
    assert not world.switching, "the task of d1 runs on the same board"
    world.end("d1")
    assert world.tick(61.0) == []
    assert world.switching == {"d0"}
    world.end_switch("d0")
    assert sorted(world.tick(62.0)) == ["d0", "d1"]


def test_after_the_second_time_it_is_set_aside(new_world: NewWorld) -> None:
    world = new_world("a")
    for _ in range(2):
        end_each(world, LOST, LOST)
        assert world.switching
        world.end_switch("d0")
    end_each(world, LOST, LOST)
    assert not world.switching
    end_each(world, LOST)
    assert world.state.lanes["d0"].probe_at_s is not None
    assert [one.number for one in world.announced(PowerCycled)] == [1, 2]


def test_a_failed_switch_counts_and_its_reason_is_told(new_world: NewWorld) -> None:
    world = new_world("a")
    end_each(world, LOST, LOST)
    world.end_switch("d0", "no relay")
    assert "no relay" in world.announced(PowerCycled)[0].text
    end_each(world, LOST)
    assert world.state.lanes["d0"].probe_at_s is not None, "three failures in a row"


def test_a_device_that_answers_no_probe_is_switched_and_one_that_is_in_use_is_not(
    new_world: NewWorld,
) -> None:
    for why, is_switched in ((LOST, True), (replace(LOST, wait=NOT_FIT.wait), False)):
        world = new_world("a")
        end_each(world, CRASHED, CRASHED, CRASHED)
        for _ in range(2):
            world.tick(world.now_s + 60.0)
            world.answer("d0", why)
        world.tick()
        assert bool(world.switching) is is_switched
    world = new_world("a")
    end_each(world, LOST, LOST)
    world.feed(messages.StopPressed(now_s=world.now_s, is_now=False))
    assert not world.state.is_over, "it may be off now"
    world.end_switch("d0")
    assert world.state.is_over

"""Single decisions of `step`: order, retries, devices set aside, hosts, silence."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from dispatch_bench import new_work
from dispatch_world import HOST_LOST, World, failure
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.dispatch.decide import messages
from fleetrank.orchestrator.dispatch.decide.lane import Lane, Waiting
from fleetrank.orchestrator.dispatch.decide.notices import SILENT_S
from fleetrank.orchestrator.dispatch.decide.retry import RetryRules, condemns_cell, delay_s
from fleetrank.orchestrator.dispatch.decide.state import next_assignments
from fleetrank.orchestrator.dispatch.decide.step import step
from fleetrank.orchestrator.progress_events import Notice

RULES = RetryRules(max_attempts=3, host_wait_s=300.0)
LOST = failure(ErrorKind.DEVICE_LOST, is_transient=True)
BAD_FILE = failure(ErrorKind.BAD_ARTIFACT, is_transient=False)
CRASHED = failure(ErrorKind.CRASHED, is_transient=False)

NewWorld = Callable[..., World]


@pytest.fixture
def new_world() -> NewWorld:
    """A sweep over devices, each with its host and whether it needs quiet; two cells each."""

    def build(*devices: tuple[str, bool], repeats: int = 2) -> World:
        hosts = {f"d{number}": host for number, (host, _) in enumerate(devices)}
        quiet = {f"d{number}": needs for number, (_, needs) in enumerate(devices)}
        work = new_work(quiet, repeats=repeats)
        places = {name: replace(work.places[name], host=host) for name, host in hosts.items()}
        world = World(replace(work, places=places))
        world.begin()
        return world

    return build


def test_the_same_events_give_the_same_actions(new_world: NewWorld) -> None:
    worlds = [new_world(("g", False), ("g", True), ("h", False)) for _ in range(2)]
    for world in worlds:
        for number in range(40):
            world.tick(float(number))
            for device in sorted(set(world.owed.values())):
                world.end(device, LOST if number % 3 else None)
    assert worlds[0].actions == worlds[1].actions
    assert any(isinstance(action, messages.Store) for action in worlds[0].actions)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("gh"), st.booleans()), min_size=1, max_size=5), st.data())
def test_a_device_with_work_is_served_before_another_of_its_host_is_served_three_times(
    new_world: NewWorld, devices: list[tuple[str, bool]], data: st.DataObject
) -> None:
    world = new_world(*devices)
    served: dict[str, Counter[str]] = {name: Counter() for name in world.state.lanes}
    while not world.state.is_over:
        lanes = world.state.lanes
        for device, _ in tuple(next_assignments(world.state, world.now_s)):
            for waiting in lanes.values():
                is_beside = waiting.host == lanes[device].host and not waiting.running
                if is_beside and waiting.fresh:
                    served[waiting.device][device] += 1
            served[device].clear()
        assert all(n <= 2 for counter in served.values() for n in counter.values())
        world.tick()
        world.end(data.draw(st.sampled_from(sorted(world.owed.values()))), None)


def test_devices_of_a_lost_host_wait_for_it_and_no_attempt_is_used_up(new_world: NewWorld) -> None:
    world = new_world(("g", False), ("g", False), ("h", False))
    assert world.tick() == ["d0", "d1", "d2"]
    world.down.add("g")
    world.fail([t for t, device in world.owed.items() if device != "d2"], HOST_LOST)
    assert world.state.lanes["d2"].running
    assert world.tick(world.state.rules.host_wait_s - 1) == [], "set aside until they answer"
    world.answer("d0", None)
    world.down.clear()
    world.answer("d1", None)
    assert world.tick() == ["d1"]
    assert [row.attempt for row in world.rows] == [0, 0]
    world.down.add("g")
    world.tick(world.state.rules.host_wait_s + 1)
    world.answer("d0", None)
    assert world.state.lanes["d0"].is_given_up


def test_a_host_may_be_lost_more_often_than_a_repeat_has_attempts(new_world: NewWorld) -> None:
    world = new_world(("g", False), repeats=1)
    for minute in range(RULES.max_attempts + 1):
        assert world.tick(60.0 * minute) == ["d0"]
        world.fail([world.task_on("d0")], HOST_LOST)
        world.tick()
        world.answer("d0", None)
    assert world.tick(60.0 * (RULES.max_attempts + 1)) == ["d0"]
    world.end("d0")
    assert [(row.attempt, row.failure) for row in world.rows] == [
        *((number, HOST_LOST) for number in range(RULES.max_attempts + 1)),
        (RULES.max_attempts + 1, None),
    ]


def test_a_device_whose_host_is_not_there_yet_is_waited_for_longer_than_a_silent_one(
    new_world: NewWorld,
) -> None:
    world = new_world(("g", False))
    world.down.add("g")
    world.begin()
    for second in range(RULES.max_probes + 3):
        world.tick(2.0 * second)
        world.answer("d0", None)
    assert not world.state.lanes["d0"].is_given_up


def test_a_repeat_whose_last_try_failed_does_not_end_again_with_its_cell() -> None:
    world = World(new_work({"d0": False}, n_models=1, repeats=3, max_attempts=1))
    world.begin()
    for why in (LOST, BAD_FILE):
        world.tick()
        world.end("d0", why)
    assert world.state.is_over
    assert list(world.ends.values()) == [1, 1, 1]


def test_rows_are_synced_when_nothing_measures_on_the_host_of_the_driver() -> None:
    work = new_work({"here": True, "there": True}, n_models=1, repeats=1)
    places = {
        name: replace(one, host=name, is_here=name == "here") for name, one in work.places.items()
    }
    world = World(replace(work, places=places))
    world.begin()
    assert world.tick(10.0) == ["here", "there"]
    for device, n_synced in (("there", 0), ("here", 2)):
        world.end(device)
        assert world.n_synced == n_synced


def test_phones_do_not_starve_a_device_that_needs_quiet(new_world: NewWorld) -> None:
    world = new_world(("g", False), ("g", False), ("g", True))
    assert world.tick() == ["d0", "d1"]
    world.end("d0")
    # d2 was never served and is next: d0 may not start again beside the still running d1.
    assert world.tick() == []
    world.end("d1")
    assert world.tick() == ["d2"]


def test_phones_of_one_host_run_side_by_side_and_a_cpu_alone(new_world: NewWorld) -> None:
    assert len(new_world(("g", False), ("g", False)).tick()) == 2
    assert len(new_world(("g", True), ("g", True)).tick()) == 1


def test_a_ready_retry_goes_before_new_work_and_an_unready_one_waits(new_world: NewWorld) -> None:
    world = new_world(("g", True))
    (fresh,) = world.state.lanes["d0"].fresh
    retry = replace(fresh, number=1)
    lane = replace(world.state.lanes["d0"], retries=(Waiting(attempt=retry, ready_s=5.0),))
    assert lane.next_ready(4.9) == (fresh,)
    assert lane.next_ready(5.0) == (retry,)


def test_a_retry_that_is_due_but_blocked_does_not_make_the_loop_spin(new_world: NewWorld) -> None:
    (attempt,) = new_world(("g", True)).state.lanes["d0"].fresh
    waiting = (Waiting(attempt=attempt, ready_s=5.0),)
    lane = Lane(device="d", host="h", needs_quiet=True, retries=waiting)
    assert lane.next_moment_s(4.0) == 5.0
    assert lane.next_moment_s(5.0) is None


def test_back_off_doubles_spreads_and_is_bounded() -> None:
    assert [delay_s(RULES, n, 0.5) for n in range(4)] == [0.5, 1.0, 2.0, 4.0]
    assert delay_s(RULES, 0, 0.0) == pytest.approx(0.25)
    assert delay_s(RULES, 10_000, 0.999) <= 1.5 * RULES.max_delay_s


def test_three_failures_in_a_row_set_a_device_aside_and_an_answer_brings_it_back(
    new_world: NewWorld,
) -> None:
    world = new_world(("g", True), repeats=3)
    for _ in range(3):
        assert world.tick() == ["d0"]
        world.end("d0", CRASHED)
    assert world.tick() == []
    assert not world.state.is_over
    assert ["aside" in text for text in [one.message for one in world.announced(Notice)]] == [True]
    world.tick(1.0)
    world.answer("d0", None)
    assert world.tick() == ["d0"]
    world.end("d0", CRASHED)
    assert world.tick() == [], "one more failure after coming back is enough"


def test_only_failures_that_every_repeat_would_have_condemn_a_cell() -> None:
    assert {kind for kind in ErrorKind if condemns_cell(failure(kind, is_transient=False))} == {
        ErrorKind.BAD_ARTIFACT,
        ErrorKind.UNSUPPORTED,
        ErrorKind.WRONG_OUTPUT,
        ErrorKind.OUT_OF_MEMORY,
        ErrorKind.TIMED_OUT,
    }
    assert not any(condemns_cell(failure(kind, is_transient=True)) for kind in ErrorKind)


def test_bad_files_do_not_count_against_the_device(new_world: NewWorld) -> None:
    world = new_world(("g", True), repeats=5)
    while world.tick():
        world.end("d0", BAD_FILE)
    assert world.state.is_over
    assert len(world.rows) == 10


def test_a_device_that_never_answers_is_given_up_and_the_sweep_ends(new_world: NewWorld) -> None:
    world = new_world(("g", True), repeats=9)
    for _ in range(3):
        world.tick()
        world.end("d0", CRASHED)
    for _ in range(RULES.max_probes):
        assert not world.state.is_over
        world.tick(world.now_s + 60)
        world.answer("d0", LOST)
    assert world.state.is_over


def test_nothing_starts_after_a_stop_and_running_attempts_still_end(new_world: NewWorld) -> None:
    world = new_world(("g", False), ("h", False))
    assert world.tick() == ["d0", "d1"]
    world.feed(messages.StopPressed(now_s=0.0, is_now=False))
    world.end("d0", LOST)
    assert world.tick(9.0) == []
    assert not world.state.is_over
    world.end("d1")
    assert world.state.is_over


def test_interrupted_workers_that_do_not_end_are_left_behind(new_world: NewWorld) -> None:
    world = new_world(("g", False))
    world.tick()
    for _ in range(2):
        step(world.state, messages.StopPressed(now_s=0.0, is_now=True))
    world.tick(14.0)
    assert not world.state.is_over
    world.tick(16.0)
    assert world.state.is_over


def test_a_silent_minute_names_what_runs_and_what_is_waited_for(new_world: NewWorld) -> None:
    world = new_world(("g", False), ("h", False), ("k", False))
    world.down.add("h")
    world.begin()
    world.tick()
    world.end("d2")
    world.feed(messages.StopPressed(now_s=0.0, is_now=False))
    n_before = len([one.message for one in world.announced(Notice)])
    world.tick(SILENT_S - 1)
    assert len([one.message for one in world.announced(Notice)]) == n_before
    world.tick(SILENT_S + 15)
    world.tick()
    (text,) = [one.message for one in world.announced(Notice)][n_before:]
    assert "1 min 00 s" in text
    assert "d0 has been busy for" in text
    assert "for 1 min 15 s" in text
    assert text.endswith("waiting for d1")


def test_a_fleet_is_counted_not_listed(new_world: NewWorld) -> None:
    world = new_world(*(("g", False) for _ in range(9)))
    world.tick()
    world.tick(SILENT_S)
    assert [one.message for one in world.announced(Notice)][-1].endswith("; 6 more")

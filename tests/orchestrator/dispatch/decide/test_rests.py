"""A device that is not fit rests: its lane is free, its host goes on, and its limit is kept."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from dispatch_bench import new_work
from dispatch_world import NOT_FIT, World, failure, repeat_of

from fleetrank.device_agents.contract.measurement import Failure, Wait
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.dispatch.decide import messages
from fleetrank.orchestrator.dispatch.decide.lane import Lane, Waiting
from fleetrank.orchestrator.dispatch.decide.retry import RetryRules, after_result, after_wait
from fleetrank.orchestrator.identity import Attempt, Repeat
from fleetrank.orchestrator.progress_events import DeviceWaits, RepeatStarted

NewWorld = Callable[..., World]
LOST = failure(ErrorKind.DEVICE_LOST, is_transient=True)


@pytest.fixture
def new_world() -> NewWorld:
    """Devices of one host, each with whether it needs quiet; two cells each."""

    def build(*quiet: bool, repeats: int = 2) -> World:
        world = World(new_work({f"d{n}": one for n, one in enumerate(quiet)}, repeats=repeats))
        world.begin()
        return world

    return build


def ask_for_time(world: World, device: str, why: Failure = NOT_FIT) -> str:
    task_id = world.task_on(device)
    world.ask_for_time(task_id, why)
    world.answer_not_fit([task_id])
    return task_id


def test_a_device_at_rest_holds_back_neither_a_phone_nor_a_quiet_device(
    new_world: NewWorld,
) -> None:
    world = new_world(False, False, True)
    assert world.tick(0.0) == ["d0", "d1"]
    ask_for_time(world, "d0")
    world.end("d1")
    assert world.tick(1.0) == ["d2"]
    world.end("d2")
    assert world.tick(2.0) == ["d1"]


def test_the_same_attempt_is_asked_again_when_it_said_and_no_row_is_made_of_it(
    new_world: NewWorld,
) -> None:
    world = new_world(False)
    world.tick(0.0)
    first = ask_for_time(world, "d0")
    assert world.tick(9.9) == []
    assert world.state.wait_s(9.9) == pytest.approx(0.1)
    assert world.tick(10.0) == ["d0"]
    assert world.task_on("d0") == first
    assert world.rows == []
    world.end("d0")
    assert [(row.attempt, row.failure) for row in world.rows] == [(0, None)]


def test_the_row_says_how_long_its_repeat_waited(new_world: NewWorld) -> None:
    world = new_world(False)
    world.tick(0.0)
    world.now_s = 2.0
    asked = world.task_on("d0")
    world.ask_for_time(asked)
    world.not_fit[asked] = replace(world.not_fit[asked], waited_s=2.0)
    world.answer_not_fit([asked])
    assert world.tick(12.0) == ["d0"]
    world.end("d0", waited_s=0.5)
    assert world.tick(13.0) == ["d0"]
    world.end("d0", waited_s=0.25)
    stored = [action for action in world.actions if isinstance(action, messages.Store)]
    assert [one.measurement.waited_s for one in stored] == [12.5, 0.25]


def test_a_wait_in_vain_and_an_unknown_wait_are_not_confused(new_world: NewWorld) -> None:
    world = new_world(False)
    now_s = 0.0
    while not world.rows:
        assert world.tick(now_s) == ["d0"]
        ask_for_time(world, "d0")
        now_s += 10.0
    world.tick(602.0)
    world.end("d0")
    stored = [action for action in world.actions if isinstance(action, messages.Store)]
    assert [one.measurement.waited_s for one in stored] == [600.0, None]


def test_after_the_limit_the_attempt_fails_with_reason_and_time_and_is_retried(
    new_world: NewWorld,
) -> None:
    world = new_world(False)
    now_s = 0.0
    while not world.rows:
        assert world.tick(now_s) == ["d0"]
        ask_for_time(world, "d0")
        now_s += 10.0
    assert world.now_s == 600.0
    (row,) = world.rows
    assert row.failure is not None
    assert (row.failure.kind, row.failure.wait) == (ErrorKind.UNFIT_CONDITIONS, None)
    assert "600 s" in row.failure.message
    assert NOT_FIT.message in row.failure.message
    assert world.tick(602.0) == ["d0"]
    assert repeat_of(world.task_on("d0")) == row.key
    ask_for_time(world, "d0")
    assert len(world.rows) == 1, "each attempt may wait as long as the first"


def test_a_device_that_waits_for_two_reasons_has_the_longer_limit_in_all(
    new_world: NewWorld,
) -> None:
    world = new_world(False)
    away = replace(NOT_FIT, kind=ErrorKind.DEVICE_LOST, wait=Wait(ask_again_s=2.0, limit_s=180.0))
    now_s = 0.0
    while not world.rows:
        world.tick(now_s)
        ask_for_time(world, "d0", away if now_s < 100.0 or now_s > 300.0 else NOT_FIT)
        rest = world.state.lanes["d0"].rest
        now_s = now_s if rest is None else rest.until_s
    assert world.now_s == 600.0


def test_a_limit_of_zero_fails_at_once(new_world: NewWorld) -> None:
    world = new_world(False)
    world.tick(0.0)
    ask_for_time(world, "d0", replace(NOT_FIT, wait=Wait(ask_again_s=0.1, limit_s=0.0)))
    assert len(world.rows) == 1


def test_a_device_that_asks_for_no_pause_is_no_busy_loop(new_world: NewWorld) -> None:
    world = new_world(False)
    world.tick(0.0)
    ask_for_time(world, "d0", replace(NOT_FIT, wait=Wait(ask_again_s=0.0, limit_s=60.0)))
    assert world.state.wait_s(0.0) > 0.2


def test_the_first_stop_ends_a_sweep_that_only_waits_and_its_repeat_is_left(
    new_world: NewWorld,
) -> None:
    world = new_world(False)
    world.tick(0.0)
    ask_for_time(world, "d0")
    world.feed(messages.StopPressed(now_s=1.0, is_now=False))
    assert world.state.is_over
    assert world.rows == []


def test_a_device_that_answers_after_the_stop_that_it_is_not_fit_is_left(
    new_world: NewWorld,
) -> None:
    world = new_world(False)
    world.tick(0.0)
    world.feed(messages.StopPressed(now_s=1.0, is_now=False))
    assert not world.state.is_over
    ask_for_time(world, "d0")
    assert world.state.is_over
    assert world.rows == []


def test_a_late_answer_that_a_device_is_not_fit_changes_nothing(new_world: NewWorld) -> None:
    world = new_world(False)
    world.tick(0.0)
    task_id = ask_for_time(world, "d0")
    before = world.state.lanes["d0"]
    world.answer_not_fit([task_id])
    assert world.state.lanes["d0"] == before
    assert world.rows == []


def test_asking_counts_no_canary(new_world: NewWorld) -> None:
    world = new_world(False)
    world.tick(0.0)
    for now_s in (10.0, 20.0, 30.0):
        ask_for_time(world, "d0")
        world.tick(now_s)
    assert world.state.lanes["d0"].n_started == 1


def test_the_user_sees_who_waits_and_why_and_a_line_a_minute(new_world: NewWorld) -> None:
    world = new_world(False)
    for now_s in range(0, 150, 10):
        world.tick(float(now_s))
        ask_for_time(world, "d0")
    seen = world.announced(DeviceWaits)
    assert {(e.device, e.reason, e.ask_again_s, e.limit_s) for e in seen} == {
        ("d0", NOT_FIT.message, 10.0, 600.0)
    }
    assert [event.waited_s for event in seen if event.is_news] == [0.0, 60.0, 120.0]
    assert len(seen) == 3, "the reason was the same"


def test_the_user_sees_another_reason_at_once_and_the_same_one_again_after_a_repeat_began(
    new_world: NewWorld,
) -> None:
    world = new_world(False)
    world.tick(0.0)
    for now_s, message in ((0.0, "ann"), (10.0, "ann"), (20.0, "bob"), (30.0, "bob")):
        ask_for_time(world, "d0", replace(NOT_FIT, message=message))
        world.tick(now_s + 10.0)
    world.tick(44.0)
    assert len(world.announced(RepeatStarted)) == 2, "it has not answered at once"
    ask_for_time(world, "d0", replace(NOT_FIT, message="bob"))
    seen = world.announced(DeviceWaits)
    assert [(event.reason, event.is_news) for event in seen] == [
        ("ann", True), ("bob", False), ("bob", False),
    ]  # fmt: skip


def test_a_repeat_is_announced_when_it_starts_and_again_when_its_device_is_fit(
    new_world: NewWorld,
) -> None:
    world = new_world(False)
    world.tick(0.0)
    for now_s in (10.0, 20.0, 30.0):
        ask_for_time(world, "d0")
        world.tick(now_s)
        world.tick(now_s + 2.0)
    assert len(world.announced(RepeatStarted)) == 1
    world.tick(34.0)
    world.tick(35.0)
    assert len(world.announced(RepeatStarted)) == 2
    assert world.announced(RepeatStarted)[0] == world.announced(RepeatStarted)[1]


def test_a_device_that_is_set_aside_or_given_up_is_seen_to_wait_with_its_failure(
    new_world: NewWorld,
) -> None:
    world = new_world(False)
    now_s = 0.0
    for _ in range(world.state.rules.failures_to_set_aside):
        now_s += 60.0
        world.tick(now_s)
        world.end("d0", LOST)
    (seen,) = world.announced(DeviceWaits)
    assert (seen.reason, seen.limit_s, seen.is_news) == (LOST.message, None, False)
    for _ in range(world.state.rules.max_probes):
        now_s += 60.0
        world.tick(now_s)
        world.answer("d0", LOST)
    assert len(world.announced(DeviceWaits)) == 2
    assert LOST.message in world.announced(DeviceWaits)[1].reason


MEASURE_S = {"cpu": 20.0, "hot": 5.0, "gone": 5.0, "good": 5.0}
COOL_S = 300.0
BACK_S = 900.0


@pytest.mark.slow
def test_a_mixed_sweep_takes_about_as_long_as_its_slowest_lane() -> None:
    """One phone cools for 5 minutes after every repeat, one is gone for 15 minutes."""
    work = new_work({name: name == "cpu" for name in MEASURE_S}, repeats=4)
    world = World(work)
    world.begin()
    ends: dict[str, tuple[float, bool]] = {}
    started: list[tuple[float, str]] = []
    fit_s = {"hot": 0.0, "gone": BACK_S}
    away = replace(NOT_FIT, kind=ErrorKind.DEVICE_LOST, wait=Wait(ask_again_s=2.0, limit_s=1000.0))
    while not world.state.is_over:
        for device in world.tick(world.now_s):
            is_fit = world.now_s >= fit_s.get(device, 0.0)
            ends[device] = world.now_s + (MEASURE_S[device] if is_fit else 0.5), is_fit
            started += [(world.now_s, device)] * is_fit
        moments = [world.now_s + world.state.wait_s(world.now_s), *(at for at, _ in ends.values())]
        world.now_s = min(moments)
        for device in [device for device, (at_s, _) in ends.items() if at_s == world.now_s]:
            _, is_measured = ends.pop(device)
            if is_measured:
                world.end(device)
            else:
                ask_for_time(world, device, NOT_FIT if device == "hot" else away)
            if is_measured and device == "hot":
                fit_s["hot"] = world.now_s + COOL_S
    n_repeats = 8
    slowest_s = n_repeats * MEASURE_S["hot"] + (n_repeats - 1) * COOL_S
    cpu_s = [at_s for at_s, device in started if device == "cpu"]
    assert len(started) == 4 * n_repeats
    assert max(cpu_s) < COOL_S, "the processor waited for a phone"
    assert max(at_s for at_s, device in started if device == "good") < COOL_S
    # Each cooling ends with a question, at most one pause and one other repeat later.
    assert slowest_s <= world.now_s <= slowest_s + n_repeats * (10.0 + MEASURE_S["cpu"])


def test_the_cells_of_a_round_that_asked_for_time_start_together_again() -> None:
    cells = new_work({"d0": True}).plan.cells
    attempts = tuple(Attempt(repeat=Repeat(cell=cell, index=0), number=0) for cell in cells)
    failed_before = Attempt(repeat=Repeat(cell=cells[0], index=1), number=1)
    running = Lane(
        device="d0",
        host="h",
        needs_quiet=True,
        running=attempts,
        retries=(Waiting(attempt=failed_before, ready_s=90.0),),
        turn=7,
    )
    wait = Wait(ask_again_s=5.0, limit_s=60.0)
    rested: Lane | None = running
    for attempt, now_s in zip(attempts, (10.0, 10.2), strict=True):
        assert rested is not None
        rested = after_wait(rested, attempt, wait, now_s, asked_s=now_s)
    assert rested is not None
    assert rested.next_ready(15.1) == ()
    assert rested.next_ready(15.2) == attempts
    assert rested.next_ready(95.0) == attempts
    # The limit is that of the round: when its first cell has waited in vain, the others have too.
    asked = replace(rested, running=attempts, retries=())
    assert after_wait(asked, attempts[0], wait, 70.0, asked_s=70.0) is None
    rules = RetryRules(max_attempts=1, host_wait_s=300.0)
    over, _ = after_result(asked, attempts[0], NOT_FIT, rules=rules, now_s=70.0, jitter=0.0)
    assert after_wait(over, attempts[1], wait, 70.0, asked_s=70.0) is None


@pytest.mark.parametrize(("limit_s", "n_asked"), [(60.0, 7), (0.0, 1)])
def test_a_device_that_another_user_has_from_the_start_is_waited_for_as_long_as_it_says(
    new_world: NewWorld, limit_s: float, n_asked: int
) -> None:
    in_use = replace(NOT_FIT, wait=Wait(ask_again_s=10.0, limit_s=limit_s))
    world = new_world(False)
    world.state.lanes["d0"] = replace(world.state.lanes["d0"], probe_at_s=0.0)
    for number in range(n_asked):
        assert not world.state.lanes["d0"].is_given_up
        world.tick(10.0 * number)
        world.answer("d0", in_use)
    assert world.state.is_over
    reasons = [one.reason for one in world.announced(DeviceWaits)]
    assert len(reasons) == min(n_asked, 2), "it waits, and is given up"
    assert all(NOT_FIT.message in reason for reason in reasons)
    assert world.rows == [], "nothing was tried"


def test_retries_of_repeats_that_failed_alone_start_one_by_one() -> None:
    cells = new_work({"d0": False}).plan.cells
    attempts = [Attempt(repeat=Repeat(cell=cell, index=0), number=1) for cell in cells]
    lane = Lane(
        device="d0",
        host="h",
        needs_quiet=False,
        retries=tuple(Waiting(attempt=one, ready_s=float(n)) for n, one in enumerate(attempts)),
    )
    assert lane.next_ready(10.0) == (attempts[0],)

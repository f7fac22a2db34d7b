"""A plan until decided: who takes part in a further round, and when the work ends."""

from dataclasses import replace

import pytest
from dispatch_bench import new_work
from dispatch_world import World, failure

from fleetrank.analysis.stopping_rule import StoppingRule, SweepQuestion
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.dispatch.decide import messages
from fleetrank.orchestrator.dispatch.decide.lane import RepeatKey
from fleetrank.orchestrator.progress_events import DecisionsMade

RULE = StoppingRule(question=SweepQuestion.ORDER, margin=0.05, first=3, most=12, budget_s=1000.0)
REPEAT_S = 10.0
FAST, SLOW, NEAR_SLOW = 1000, 3000, 3010
BROKEN = failure(ErrorKind.CRASHED, is_transient=False)


def latency_ns(key: RepeatKey) -> int:
    """The first model is far from the others, which differ by far less than they vary."""
    model = int(key[0].rpartition("-")[2])
    return (FAST, SLOW, NEAR_SLOW)[model] + 100 * ((key[1] * (model + 3)) % 5)


def new_world(rule: StoppingRule = RULE) -> World:
    work = new_work({"d0": False}, n_models=3)
    return World(
        replace(work, plan=replace(work.plan, repeats=rule.most, until=rule)), latency_of=latency_ns
    )


def run(world: World, n_repeats: int | None = None, broken: str | None = None) -> list[RepeatKey]:
    """Measures so many repeats, or until the end; the keys in order."""
    measured = []
    while not world.state.is_over and len(measured) != n_repeats:
        world.tick(world.now_s)
        task = world.task_on("d0")
        cell_key, repeat = task.split("/")[1], int(task.split("/")[2])
        world.now_s += REPEAT_S
        world.end("d0", BROKEN if cell_key == broken else None)
        measured.append((cell_key, repeat))
    return measured


def repeats_of(keys: list[RepeatKey]) -> dict[str, int]:
    return {key: sum(one == key for one, _ in keys) for key in ("d0-0", "d0-1", "d0-2")}


def last_look(world: World) -> DecisionsMade:
    return world.announced(DecisionsMade)[-1]


def test_only_models_with_an_open_decision_are_measured_further() -> None:
    world = new_world()
    world.begin()
    counts = repeats_of(run(world))
    assert counts["d0-0"] < counts["d0-1"] == counts["d0-2"] == RULE.most
    look = last_look(world)
    assert (look.n, look.n_decided, look.n_repeats) == (3, 2, 0)
    assert look.answer.startswith("from fast to slow: model0")
    (pair,) = look.open_pairs
    assert {pair.a, pair.b} == {"model1", "model2"}
    assert pair.more_rounds is None or pair.more_rounds > 0


def test_it_ends_when_the_fastest_is_known() -> None:
    world = new_world(replace(RULE, question=SweepQuestion.FASTEST))
    world.begin()
    counts = repeats_of(run(world))
    assert max(counts.values()) < RULE.most
    assert last_look(world).answer == "fastest: model0"
    assert last_look(world).open_pairs == ()


def test_the_budget_ends_it_and_a_new_driver_does_not_go_on() -> None:
    rule = replace(RULE, budget_s=10 * REPEAT_S)
    world = new_world(rule)
    world.begin()
    n_measured = len(run(world))
    assert 9 < n_measured < 3 * RULE.most - 5
    assert last_look(world).is_budget_used
    world.work = replace(world.work, spent_s=n_measured * REPEAT_S)
    world.begin()
    assert run(world) == []


@pytest.mark.parametrize("n_before", [1, 7, 9, 10, 13, 16])
def test_a_new_driver_measures_what_the_first_would_have(n_before: int) -> None:
    whole, parts = new_world(), new_world()
    whole.begin()
    expected = run(whole)
    parts.begin()
    before = run(parts, n_before)
    parts.feed(messages.StopPressed(now_s=parts.now_s, is_now=False))
    parts.feed(messages.Ended(now_s=parts.now_s))
    parts.begin()
    assert sorted(before + run(parts)) == sorted(expected)


def test_a_model_that_fails_is_left_out_and_the_others_are_decided() -> None:
    world = new_world(replace(RULE, question=SweepQuestion.FASTEST))
    world.begin()
    run(world, broken="d0-0")
    look = last_look(world)
    assert look.n == 2, "the failed model takes part in no decision"
    failed = [row for row in world.written if row.key[0] == "d0-0"]
    assert len(failed) == RULE.first, "no row of rounds that it takes no part in"


def test_without_the_first_model_nothing_is_said_to_be_slower_than_it() -> None:
    rule = replace(RULE, question=SweepQuestion.NOT_SLOWER, baseline="model0")
    whole, lacking = new_world(rule), new_world(rule)
    whole.begin()
    run(whole)
    assert last_look(whole).answer == "slower: model2, model1"
    lacking.begin()
    run(lacking, broken="d0-0")
    assert lacking.announced(DecisionsMade) == []
    assert {row.key[1] for row in lacking.written} == {0, 1, 2}

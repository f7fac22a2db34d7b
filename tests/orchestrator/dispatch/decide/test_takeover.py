"""An equal device measures in place of one that was given up."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from dispatch_bench import Bench, ScriptedHosts, always_well, late, new_failure, new_work
from dispatch_world import FACTS

from fleetrank.device_agents.contract.measurement import Failure
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.identity import HostRules, RoundRules


def gone_and(broken: str) -> Callable[[str, MeasureTask], Failure | None]:
    """Device a answers nothing, and one cell cannot be measured anywhere."""

    def answer(device: str, task: MeasureTask) -> Failure | None:
        if device == "a":
            return new_failure(ErrorKind.DEVICE_LOST)
        is_broken = task.task_id.split("/")[1] == broken
        return new_failure(ErrorKind.BAD_ARTIFACT, is_transient=False) if is_broken else None

    return answer


def taken_over(executor: object, *, allows_takeover: bool = True, seed: int = 0) -> Bench:
    work = new_work({"a": False, "b": False}, n_models=3, repeats=2)
    work = replace(
        work, plan=replace(work.plan, hosts=HostRules(takeover=allows_takeover), seed=seed)
    )
    executor.probes.extend([False] * 50)
    bench = Bench(work, executor)
    bench.controller.run()
    return bench


def test_an_equal_device_takes_over_what_a_given_up_one_leaves_if_the_sweep_allows_it() -> None:
    answer = gone_and("no cell")
    alone = taken_over(ScriptedHosts(["a", "b"], answer), allows_takeover=False)
    assert (alone.tally.n_ok, {row["device"] for row in alone.sink.rows}) == (6, {"a", "b"})
    shared = taken_over(ScriptedHosts(["a", "b"], answer))
    good = [row for row in shared.sink.rows if row["status"] == "ok"]
    assert shared.tally.n_ok == len(good) == 12
    said = {(row["device"], row["platform_key"], row["taken_over_by"]) for row in good}
    assert said == {("a", "a/onnx", "b"), ("b", "b/onnx", None)}
    assert {tuple(row["flags"]) for row in good if row["device"] == "a"} == {("taken_over",)}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("broken", ["a-0", "a-1", "a-2"])
def test_a_taken_over_cell_that_fails_for_good_holds_up_nothing_behind_it(
    broken: str, seed: int
) -> None:
    executor = ScriptedHosts(["a", "b"], gone_and(broken))
    bench = taken_over(executor, seed=seed)
    assert (bench.tally.n_ok, bench.tally.n_finished) == (10, 12)


def test_a_taker_that_takes_no_turns_measures_a_round_one_by_one() -> None:
    work = new_work({"a": True, "b": False}, n_models=3, repeats=1)
    places = {name: replace(p, takes_turns=name == "a") for name, p in work.places.items()}
    limits = replace(work.plan.limits, max_attempts=1)
    hosts = HostRules(takeover=True)
    plan = replace(work.plan, hosts=hosts, rounds=RoundRules(), limits=limits)
    executor = ScriptedHosts(["a", "b"], always_well)
    executor.facts = lambda: {"b": FACTS}
    executor.probe = lambda device: FACTS if device == "b" else new_failure(ErrorKind.DEVICE_LOST)
    bench = Bench(replace(work, places=places, plan=plan), executor)
    bench.controller._state.facts["a"] = FACTS
    bench.controller.run()
    assert bench.tally.n_ok == 6
    assert {row["taken_over_by"] for row in bench.sink.rows} == {None, "b"}


def test_a_late_result_of_a_taker_is_stored_as_taken_over() -> None:
    work = new_work({"a": False, "b": False}, n_models=1, repeats=1)
    executor = ScriptedHosts(["a", "b"], always_well)
    stem = f"{work.sweep.sweep_id}/a-0/0/3"
    executor.offered = [late(f"{stem}/nobody"), late(f"{stem}/b/b"), late(f"{stem}/b")]
    bench = Bench(work, executor)
    bench.controller.run()
    (row,) = [row for row in bench.sink.rows if row["cell_key"] == "a-0"]
    assert (row["device"], row["taken_over_by"], row["latency_p50_ns"]) == ("a", "b", 5000.0)

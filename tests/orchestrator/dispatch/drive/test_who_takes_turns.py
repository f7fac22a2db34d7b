"""Which devices take turns: those whose agent can; the others measure one cell after the other."""

from dataclasses import replace

import pytest
from dispatch_bench import Bench, ScriptedHosts, always_well, new_work

from fleetrank.device_agents.contract.agent import RoundAgent
from fleetrank.device_agents.registry import create_agent, load_kind
from fleetrank.orchestrator.identity import RoundRules


@pytest.mark.parametrize("name", ["cpu", "cuda", "simulated"])
def test_a_kind_says_that_it_takes_turns_exactly_if_its_agent_can(name: str) -> None:
    is_round_agent = isinstance(create_agent(name, {}), RoundAgent)
    assert load_kind(name).traits_of({}).takes_turns == is_round_agent == (name == "cpu")


def test_with_rounds_such_a_device_measures_whole_repeats_and_meets_all_first_ones_first() -> None:
    work = new_work({"gpu": True}, n_models=4)
    bench = Bench(
        replace(work, plan=replace(work.plan, rounds=RoundRules())),
        ScriptedHosts(["gpu"], always_well),  # it refuses a second task beside one that runs
    )
    bench.controller.run()
    tasks = [task for _, task in bench.executor.submitted]
    assert {(task.blocks, task.members) for task in tasks} == {(None, ())}
    assert [row["repeat"] for row in bench.sink.rows] == [0] * 4 + [1] * 4
    first, second = bench.sink.rows[:4], bench.sink.rows[4:]
    assert [row["model"] for row in first] != [row["model"] for row in second]

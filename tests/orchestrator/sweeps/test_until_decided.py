"""Sweeps that stop when their question is decided, on a simulated device whose repeats vary."""

import json
import signal
from collections import Counter
from dataclasses import replace

import pytest

from fleetrank.analysis.stopping_rule import StoppingRule, SweepQuestion
from fleetrank.orchestrator.progress_events import DecisionsMade, Event
from fleetrank.orchestrator.sweep.sweep_run import resume_sweep, run_sweep
from fleetrank.orchestrator.sweep.sweep_session import RunOptions
from fleetrank.orchestrator.workspace.workspace import Workspace


@pytest.fixture
def devices(folder):
    """A workspace whose first model takes far less time than the others, which are equal."""
    for number, macs in enumerate((10**6, 10**9, 10**9)):
        card = folder.root / "cards" / f"m{number}.toml"
        card.write_text(card.read_text().replace("macs = 1000000", f"macs = {macs}"))
    text = "name: sim\nkind: simulated\noptions: {noise: 0.03}\n"
    (folder.root / "devices" / "sim.yaml").write_text(text)
    return folder


def write_spec(folder, until: str, repeats: int = 8) -> None:
    path = folder.write_spec(["m0", "m1", "m2"], ["sim"], repeats=repeats)
    path.write_text(path.read_text() + f"until: {until}\n")


def counts(folder) -> Counter[str]:
    return Counter(row["model"] for row in folder.rows())


def test_a_sweep_ends_when_the_fastest_model_is_known(devices) -> None:
    write_spec(devices, "fastest")
    ended = devices.call("sweep", "run", "t", "--inline")
    assert ended.returncode == 0, ended.stderr
    assert "3 of 3 decisions taken on sim" in ended.stdout
    assert "fastest: m0" in ended.stdout
    assert set(counts(devices).values()) <= {3, 4, 5}
    (text,) = {row["stopping_rule"] for row in devices.rows()}
    rule = StoppingRule.parse(text)
    assert rule is not None
    assert (rule.question, rule.most, rule.baseline) == (SweepQuestion.FASTEST, 8, "m0")
    shown = devices.call("sweep", "status", "t").stdout
    assert "decided   3 of 3 decisions taken" in shown
    table = devices.call("report", "show", "latency", "--include-simulated", "--all")
    assert "measured until decided (fastest)" in table.stdout


def test_a_resumed_sweep_measures_only_what_is_open(devices) -> None:
    write_spec(devices, "{question: order, margin: 0.5%}", repeats=12)
    planned = devices.call("sweep", "plan", "t").stdout
    assert "3 cells x 3 repeats = 9 processes" in planned
    assert "until decided (order, within 0.5 %)" in planned
    devices.call("sweep", "run", "t", "--inline")
    found = json.loads(devices.call("sweep", "status", "t", "--json").stdout)
    assert (found["state"], found["n_left"]) == ("finished", 0)
    (look,) = found["decisions"]
    assert (look["n"], look["n_decided"], look["n_repeats"]) == (3, 2, 0)
    assert {look["open_pairs"][0][side] for side in "ab"} == {"m1", "m2"}
    before = counts(devices)
    assert before["m0"] < before["m1"] == before["m2"] == 12
    devices.call("sweep", "resume", "t", "--inline")
    assert counts(devices) == before


def test_a_budget_that_is_used_ends_it_and_stays_used(devices) -> None:
    text = "name: sim\nkind: simulated\noptions: {noise: 0.03, duration_s: 0.05}\n"
    (devices.root / "devices" / "sim.yaml").write_text(text)
    write_spec(devices, "{question: order, margin: 0.5%, budget: 0.3s}", repeats=12)
    ended = devices.call("sweep", "run", "t", "--inline")
    assert "the budget is used" in ended.stdout
    assert set(counts(devices).values()) == {3}
    devices.call("sweep", "resume", "t", "--inline")
    assert set(counts(devices).values()) == {3}


@pytest.mark.parametrize(
    ("until", "problem"),
    [
        ("quickest", "until.question"),
        ("{question: order, budget: 2 weeks}", "until.budget"),
        ("{question: order, first: 9}", "until.first 9 is above repeats 8"),
    ],
)
def test_a_wrong_key_is_named(devices, until: str, problem: str) -> None:
    write_spec(devices, until)
    refused = devices.call("sweep", "plan", "t")
    assert refused.returncode == 2
    assert problem in refused.stderr


def test_one_model_leaves_nothing_to_decide(devices) -> None:
    refused = devices.call("run", "m0", "--device", "sim", "--until-decided", "order")
    assert refused.returncode == 2
    assert "nothing to decide" in refused.stderr


def test_a_sweep_that_is_stopped_goes_on_as_if_it_had_not_been(devices) -> None:
    write_spec(devices, "{question: order, margin: 0.5%}", repeats=10)
    workspace = Workspace.at(devices.root)
    options = RunOptions(is_inline=True)
    run_sweep(workspace, workspace.sweeps / "t.yaml", options)
    whole = counts(devices)

    def stop_at_a_look(event: Event) -> None:
        if isinstance(event, DecisionsMade) and event.n_repeats:
            signal.raise_signal(signal.SIGINT)

    stopping = replace(options, subscribers=[stop_at_a_look])
    stopped = run_sweep(workspace, workspace.sweeps / "t.yaml", stopping)
    assert stopped.is_interrupted
    assert sum(counts(devices).values()) < sum(whole.values())
    assert not resume_sweep(workspace, None, options).is_interrupted
    assert counts(devices) == whole

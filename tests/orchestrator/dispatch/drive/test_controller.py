"""The loop: what it stores, when it stops, and what a full disk does to it."""

from dataclasses import replace

import pytest
from dispatch_bench import Bench, ScriptedHosts, always_well, new_failure, new_work

from fleetrank.device_agents.contract.measurement import Block, Failure
from fleetrank.device_agents.contract.task import CanaryTask, MeasureTask
from fleetrank.foundation.vocabulary import ErrorKind, Origin
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.progress_events import Notice


def test_every_repeat_is_measured_once_and_all_first_repeats_come_first() -> None:
    bench = Bench(new_work({"a": True}, n_models=5), ScriptedHosts(["a"], always_well))
    bench.controller.run()
    assert len(set(bench.stored())) == len(bench.stored()) == 10
    assert [row["repeat"] for row in bench.sink.rows] == [0] * 5 + [1] * 5
    assert bench.sink.rows[0]["latency_p50_ns"] == 2000.0


def test_a_cell_that_never_returns_is_tried_once_and_a_resume_passes_it_over() -> None:
    def model0_hangs(device: str, task: MeasureTask) -> Failure | None:
        hangs = task.artifact_sha256 == "0"
        return new_failure(ErrorKind.TIMED_OUT, is_transient=False) if hangs else None

    for n_models in (1, 3):  # alone, its next repeat waits already when the first one fails
        work = new_work({"a": True}, n_models=n_models, repeats=4)
        bench = Bench(work, ScriptedHosts(["a"], model0_hangs))
        bench.controller.run()
        assert sum(task.artifact_sha256 == "0" for _, task in bench.executor.submitted) == 1
        assert (bench.tally.n_ok, bench.tally.n_failed) == (4 * (n_models - 1), 4)
        assert len(set(bench.stored())) == len(bench.stored()) == 4 * n_models
        failed = [row for row in bench.sink.rows if row["status"] == "failed"]
        assert {row["error_kind"] for row in failed} == {"timed_out"}
        untried = "not tried: repeat 1 failed with timed_out: timed_out"
        assert [row["error_message"] for row in failed[1:]] == [untried] * 3
        # The driver may die between the failure and the rows that follow from it.
        for n_kept in (bench.sink.rows.index(failed[0]) + 1, len(bench.sink.rows)):
            rows = bench.sink.rows[:n_kept]
            resumed = Bench(work, ScriptedHosts(["a"], model0_hangs), rows=rows)
            resumed.controller.run()
            assert all(task.artifact_sha256 != "0" for _, task in resumed.executor.submitted)
            assert n_kept + len(resumed.sink.rows) == 4 * n_models


def test_a_model_without_a_file_is_a_failed_row_per_repeat_and_is_never_dispatched() -> None:
    reason = new_failure(ErrorKind.EXPORT_FAILED, is_transient=False)
    work = new_work({"a": True}, n_models=2, broken={0: reason})
    bench = Bench(work, ScriptedHosts(["a"], always_well))
    bench.controller.run()
    failed = [row for row in bench.sink.rows if row["status"] == "failed"]
    assert [(row["model"], row["error_kind"]) for row in failed] == [
        ("model0", "export_failed")
    ] * 2
    assert {task.artifact_sha256 for _, task in bench.executor.submitted} == {"1"}
    assert bench.tally.n_ok == 2


def test_a_resumed_sweep_measures_what_is_left_and_numbers_attempts_on() -> None:
    work = new_work({"a": True}, n_models=2, repeats=2)
    whole = Bench(work, ScriptedHosts(["a"], always_well))
    whole.controller.run()
    done, lost = whole.sink.rows[:2], whole.sink.rows[2]
    lost = lost | {"status": "failed", "error_is_transient": True, "error_kind": "device_lost"}
    resumed = Bench(work, ScriptedHosts(["a"], always_well), rows=[*done, lost])
    resumed.controller.run()
    assert {key[:2] for key in resumed.stored()} == {key[:2] for key in whole.stored()[2:]}
    again = (lost["cell_key"], lost["repeat"], 1)
    assert again in resumed.stored()


def test_a_phone_that_refuses_this_computer_costs_no_cell_and_a_resume_asks_it_again() -> None:
    work = new_work({"a": True}, n_models=3, repeats=2)
    refusal = new_failure(ErrorKind.DEVICE_LOST, is_transient=False)
    executor = ScriptedHosts(["a"], lambda *_: refusal)
    executor.probes.extend([False] * 5)
    bench = Bench(work, executor)
    bench.controller.run()
    assert len(bench.sink.rows) == 3, "then it was set aside and given up"
    resumed = Bench(work, ScriptedHosts(["a"], always_well), rows=bench.sink.rows)
    resumed.controller.run()
    assert (resumed.tally.n_ok, resumed.tally.n_failed) == (6, 0)


def test_one_stop_finishes_and_stores_what_runs() -> None:
    bench = Bench(new_work({"a": True}, n_models=9), ScriptedHosts(["a"], always_well))
    bench.executor.on_poll = lambda: (
        bench.switch.press() if len(bench.executor.submitted) == 3 else None
    )
    bench.controller.run()
    assert [row["status"] for row in bench.sink.rows] == ["ok"] * 3
    assert bench.executor.finishes_rounds
    assert not bench.executor.is_interrupted


def test_a_second_stop_interrupts_and_a_resume_would_measure_it_again() -> None:
    bench = Bench(new_work({"a": True}, n_models=9), ScriptedHosts(["a"], always_well))
    answers = bench.executor.poll

    def slow_poll(timeout_s: float):
        if len(bench.executor.submitted) < 3 or bench.executor.is_interrupted:
            return answers(timeout_s)
        bench.switch.press()
        bench.executor.now_s += timeout_s
        return []

    bench.executor.poll = slow_poll
    bench.controller.run()
    assert [row["error_kind"] for row in bench.sink.rows] == [None, None, "interrupted"]
    assert bench.tally.n_finished == 2


def test_a_full_disk_stops_the_sweep_and_keeps_what_was_stored() -> None:
    bench = Bench(new_work({"a": True}, n_models=9), ScriptedHosts(["a"], always_well))
    bench.sink.room = 4
    with pytest.raises(StoreError, match="disk is full"):
        bench.controller.run()
    assert len(bench.sink.rows) == 4
    assert len(bench.executor.submitted) == 5
    assert any(isinstance(event, Notice) and "full" in event.message for event in bench.events)


def test_rows_that_fit_again_at_the_end_are_not_lost() -> None:
    work = new_work({"a": False, "b": False, "c": False}, n_models=9)
    bench = Bench(work, ScriptedHosts(["a", "b", "c"], always_well))
    bench.sink.room = 2
    bench.executor.on_poll = lambda: setattr(
        bench.sink, "room", 2 if bench.executor.now_s < 0.5 else None
    )
    with pytest.raises(StoreError):
        bench.controller.run()
    assert bench.sink.pending + bench.sink.rows
    assert len(bench.sink.rows) + len(bench.sink.pending) == len(bench.executor.submitted)


def test_the_canary_runs_at_the_start_every_k_repeats_and_at_the_end() -> None:
    work = new_work({"phone": False, "box": True}, n_models=4, repeats=2)
    canary = CanaryTask(
        artifact_path="/c", artifact_sha256="c", affinity=None,
        reference_ns=5_000_000, spread=None, runs_before=False, runs_after=False,
    )  # fmt: skip
    work = replace(work, canaries={"phone": canary}, plan=replace(work.plan, canary_every=3))
    bench = Bench(work, ScriptedHosts(["phone", "box"], always_well))
    bench.controller.run()
    seen: dict[str, list[str]] = {"phone": [], "box": []}
    for device, task in bench.executor.submitted:
        runs = task.canary
        when = ("b" if runs.runs_before else "") + ("a" if runs.runs_after else "") if runs else ""
        seen[device].append(when)
    assert seen == {"phone": ["b", "", "", "b", "", "", "b", "a"], "box": [""] * 8}


def test_a_failure_on_a_virtual_phone_that_never_told_what_it_is_is_marked() -> None:
    work = new_work({"phone": False}, n_models=1, repeats=1)
    place = replace(work.places["phone"], origin=Origin.VIRTUAL)
    failure = Failure(kind=ErrorKind.CRASHED, message="m", remedy="r", is_transient=False)
    executor = ScriptedHosts(["phone"], lambda _device, _task: failure)
    bench = Bench(replace(work, places={"phone": place}), executor)
    bench.controller._state.facts.clear()
    bench.controller.run()
    assert [row["origin"] for row in bench.sink.rows] == ["virtual"]


def test_an_answer_that_is_no_row_fails_alone() -> None:
    def forged(device: str, task: MeasureTask) -> Failure | None:
        return None

    bench = Bench(new_work({"a": True}, n_models=3), ScriptedHosts(["a"], forged))
    changes = iter(
        [
            {"samples_ns": (10**400,)},
            {"blocks": (Block(start_ns=0, samples=0, left_out_ns=()),)},
            {"started_utc": "no time"},
            {"load_ns": 2**63},
        ]
    )
    poll = bench.executor.poll
    bench.executor.poll = lambda timeout_s: [
        replace(one, **next(changes, {})) for one in poll(timeout_s)
    ]
    bench.controller.run()
    assert len(set(bench.stored())) == len(bench.stored()) == 6
    kinds = [row["error_kind"] for row in bench.sink.rows]
    assert (kinds.count("bad_output"), kinds.count(None)) == (4, 2)
    assert (bench.tally.n_ok, bench.tally.n_failed) == (2, 4)

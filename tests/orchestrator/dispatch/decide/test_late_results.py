"""Measurements nobody waits for any more: stored once, or let go of."""

from dataclasses import replace

import pytest
from dispatch_bench import Bench, ScriptedHosts, always_well, late, new_failure, new_work

from fleetrank.foundation.vocabulary import ErrorKind
from fleetrank.orchestrator.progress_events import RepeatFinished
from fleetrank.orchestrator.progress_view import View, after_repeats


def counted(bench: Bench) -> tuple[int, int]:
    """Good and failed repeats that a display counts."""
    finished = [one for one in bench.events if isinstance(one, RepeatFinished)]
    view = after_repeats(View(), finished, 0.0)
    return view.n_done, view.n_failed


def test_what_a_dead_driver_left_finished_is_stored_and_not_measured_again() -> None:
    work = new_work({"a": True})
    executor = ScriptedHosts(["a"], always_well)
    executor.offered = [late(f"{work.sweep.sweep_id}/a-0/0/0"), late("other-sweep/a-0/1/0")]
    bench = Bench(work, executor)
    bench.controller.run()
    assert sorted(bench.stored()) == [("a-0", 0, 0), ("a-0", 1, 0), ("a-1", 0, 0), ("a-1", 1, 0)]
    assert [row["latency_p50_ns"] for row in bench.sink.rows].count(5000.0) == 1
    assert len(executor.submitted) == 3
    # The stranger's is let go of too: whoever it belongs to asks for its own.
    assert len(set(executor.acknowledged)) == 5
    assert counted(bench) == (4, 0)


def test_what_a_dead_driver_left_running_is_waited_for() -> None:
    work = new_work({"a": True}, n_models=1)
    task_id = f"{work.sweep.sweep_id}/a-0/1/4"
    executor = ScriptedHosts(["a"], always_well)
    executor.left_running = {task_id: "a"}
    executor.on_poll = lambda: executor.offered.extend(
        [late(task_id)] if executor.now_s > 1 and task_id not in executor.acknowledged else []
    )
    bench = Bench(work, executor)
    bench.controller.run()
    assert sorted(bench.stored()) == [("a-0", 0, 0), ("a-0", 1, 4)]
    assert [task.task_id for _, task in executor.submitted] == [f"{work.sweep.sweep_id}/a-0/0/0"]


def test_a_measurement_believed_lost_counts_when_it_comes_after_all() -> None:
    work = new_work({"a": False}, n_models=1, repeats=1)
    executor = ScriptedHosts(["a"], lambda device, task: new_failure(ErrorKind.HOST_LOST))
    executor.probes.extend([False] * 3)
    first = f"{work.sweep.sweep_id}/a-0/0/0"

    def comes_back() -> None:
        if executor.now_s > 2 and executor.answer is not always_well:
            # Its host has made nothing yet, so nothing of it was acknowledged.
            assert first not in executor.acknowledged
            executor.offered.append(late(first))
            executor.answer = always_well

    executor.on_poll = comes_back
    bench = Bench(work, executor)
    bench.controller.run()
    outcomes = [(row["attempt"], row["status"], row["error_kind"]) for row in bench.sink.rows]
    assert outcomes[0] == (0, "failed", "host_lost")
    assert outcomes[-1] == (1, "ok", None)
    assert bench.sink.rows[-1]["latency_p50_ns"] == 5000.0
    assert bench.tally.n_ok == 1


@pytest.mark.parametrize("is_second_good", [True, False])
def test_a_late_measurement_counts_when_the_try_that_runs_meanwhile_fails(
    is_second_good: bool,
) -> None:
    work = new_work({"a": False}, n_models=1, repeats=1)
    first = f"{work.sweep.sweep_id}/a-0/0/0"
    executor = ScriptedHosts(["a"], lambda d, t: new_failure(ErrorKind.HOST_LOST))
    known: list[int] = []

    def comes_while_the_second_runs() -> None:
        if len(executor.submitted) == 2 and not known:
            known.append(executor.acknowledged.count(first))
            executor.offered = [late(first)]
            executor.answer = lambda d, t: (
                None if is_second_good else new_failure(ErrorKind.CRASHED, is_transient=False)
            )

    executor.on_poll = comes_while_the_second_runs
    bench = Bench(work, executor)
    bench.controller.run()
    assert bench.tally.n_ok == 1
    # What failed for good was counted before the late measurement was used.
    assert counted(bench) == ((1, 0) if is_second_good else (0, 1))
    good = [row["latency_p50_ns"] for row in bench.sink.rows if row["status"] == "ok"]
    assert good == ([2000.0] if is_second_good else [5000.0])
    # Its host may let go of it once it is decided on, not before.
    assert executor.acknowledged.count(first) == known[0] + 1


def test_a_running_attempt_that_was_stored_as_lost_gets_a_number_of_its_row() -> None:
    work = new_work({"a": True}, n_models=1, repeats=1)
    task_id = f"{work.sweep.sweep_id}/a-0/0/0"
    lost = {
        "sweep_id": work.sweep.sweep_id, "cell_key": "a-0", "repeat": 0, "attempt": 0,
        "status": "failed", "error_kind": "host_lost", "error_is_transient": True,
    }  # fmt: skip
    executor = ScriptedHosts(["a"], always_well)
    executor.left_running = {task_id: "a"}
    executor.on_poll = lambda: executor.offered.append(late(task_id))
    bench = Bench(work, executor, rows=[lost])
    bench.controller.run()
    assert bench.stored() == [("a-0", 0, 1)]
    assert executor.submitted == []


def test_a_run_that_is_restricted_leaves_results_of_other_cells_to_a_later_one() -> None:
    work = new_work({"a": True})
    kept = tuple(cell for cell in work.plan.cells if cell.cell_key == "a-1")
    executor = ScriptedHosts(["a"], always_well)
    left = f"{work.sweep.sweep_id}/a-0/0/0"
    executor.offered = [late(left), late(f"{work.sweep.sweep_id}/a-1/0/0")]
    bench = Bench(replace(work, plan=replace(work.plan, cells=kept)), executor)
    bench.controller.run()
    assert sorted(bench.stored()) == [("a-1", 0, 0), ("a-1", 1, 0)]
    assert left not in executor.acknowledged
    assert len(set(executor.acknowledged)) == 2

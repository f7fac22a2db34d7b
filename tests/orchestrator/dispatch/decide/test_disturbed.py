"""A round that its host disturbed is measured again as a round; all its rows are kept."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from dispatch_bench import Bench, ScriptedHosts, new_failure, new_work

from fleetrank.device_agents.contract.measurement import Block, Failure, Measurement
from fleetrank.device_agents.contract.task import MeasureTask
from fleetrank.foundation.vocabulary import ErrorKind, Origin, Status
from fleetrank.orchestrator.identity import HostRules, RoundRules
from fleetrank.orchestrator.keys import TaskId
from fleetrank.orchestrator.progress_events import Notice, RepeatFinished
from fleetrank.orchestrator.progress_view import View, after_repeats

N_BLOCKS = 5
Logs = Callable[[TaskId], Sequence[float]]
QUIET = np.zeros(N_BLOCKS)
STORM = np.array([0.0, 0.4, 0.0, 0.4, 0.0])


class RoundExecutor:
    """Answers the tasks of a round together; `logs` are those of the medians of its blocks."""

    def __init__(self, base: object, logs: Logs, fails: Callable[[TaskId], Failure | None]) -> None:
        self.base, self.logs, self.fails = base, logs, fails
        self.running: dict[str, MeasureTask] = {}
        self.rounds: list[tuple[float, list[TaskId]]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.base, name)

    def __enter__(self) -> "RoundExecutor":
        return self

    def __exit__(self, *exc_info: object) -> None: ...

    def submit(self, device: str, task: MeasureTask) -> None:
        self.running[task.task_id] = task

    def poll(self, timeout_s: float) -> Sequence[Measurement]:
        self.base.now_s += max(timeout_s, 0.01)  # type: ignore[attr-defined]
        tasks = list(self.running.values())
        self.running.clear()
        if tasks:
            ids = [parsed(task) for task in tasks]
            assert set(tasks[0].members) == {task.task_id for task in tasks}
            self.rounds.append((self.base.now_s, ids))  # type: ignore[attr-defined]
        return [self._answer(task) for task in tasks]

    def _answer(self, task: MeasureTask) -> Measurement:
        failure = self.fails(parsed(task))
        medians = np.round(1e6 * np.exp(self.logs(parsed(task)))).astype(int).tolist()
        return Measurement(
            task_id=task.task_id,
            status=Status.OK if failure is None else Status.FAILED,
            origin=Origin.SIMULATED,
            failure=failure,
            round_id=task.members[0],
            samples_ns=tuple(medians) if failure is None else (),
            blocks=() if failure else tuple(Block(start_ns=n, samples=1, left_out_ns=())
                                            for n in range(N_BLOCKS)),
            started_utc="2026-01-01T00:00:00+00:00",
            finished_utc="2026-01-01T00:00:01+00:00",
        )  # fmt: skip


def parsed(task: MeasureTask) -> TaskId:
    found = TaskId.parse(task.task_id)
    assert found is not None
    return found


@pytest.fixture
def swept() -> Callable[..., Bench]:
    """A sweep of two models and two repeats in rounds, which has ended."""

    def run(
        logs: Logs,
        *,
        repeats_disturbed: bool = True,
        fails: Callable[[TaskId], Failure | None] = lambda task: None,
    ) -> Bench:
        work = new_work({"a": True})
        rules = RoundRules(cells=3, mix_platforms=True, memory_bytes=2**40)
        hosts = HostRules(quiet="retry" if repeats_disturbed else "flag")
        plan = replace(work.plan, rounds=rules, hosts=hosts)
        places = {name: replace(one, takes_turns=True) for name, one in work.places.items()}
        executor = RoundExecutor(ScriptedHosts(["a"], lambda *_: None), logs, fails)
        bench = Bench(replace(work, plan=plan, places=places), executor)
        bench.controller.run()
        return bench

    return run


def attempts(bench: Bench) -> list[tuple[object, object]]:
    return sorted((row["repeat"], row["attempt"]) for row in bench.sink.rows)


def test_a_disturbed_round_is_measured_again_as_a_round_and_both_are_kept(
    swept: Callable[..., Bench],
) -> None:
    bench = swept(lambda task: STORM if (task.repeat, task.attempt) == (0, 0) else QUIET)
    assert attempts(bench) == [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0)]
    assert {row["status"] for row in bench.sink.rows} == {"ok"}
    # What is pending comes first; the host may be in another state half a minute later.
    (first, _), (_, second), (last, again) = bench.executor.rounds
    assert [one.repeat for one in second] == [1, 1]
    assert {(one.repeat, one.attempt) for one in again} == {(0, 1)}
    assert last - first >= 30.0
    (notice,) = [one.message for one in bench.events if isinstance(one, Notice)]
    assert "2 cells" in notice


def test_a_repeat_counts_once_however_often_it_was_measured(swept: Callable[..., Bench]) -> None:
    bench = swept(lambda task: STORM if task.attempt == 0 else QUIET)
    finished = [one for one in bench.events if isinstance(one, RepeatFinished)]
    assert len(finished) == 8
    assert sum(not one.will_retry for one in finished) == bench.tally.n_ok == 4
    view = after_repeats(View(n_repeats=4), finished, 0.0)
    assert (view.n_done, view.n_failed) == (4, 0)


def test_a_host_that_stays_disturbed_ends_at_the_limit(swept: Callable[..., Bench]) -> None:
    assert attempts(swept(lambda task: STORM)) == sorted(
        (repeat, attempt) for repeat in (0, 1) for attempt in (0, 1, 2) for _ in "ab"
    )


def test_without_the_setting_a_disturbed_round_counts(swept: Callable[..., Bench]) -> None:
    assert attempts(swept(lambda task: STORM, repeats_disturbed=False)) == [
        (0, 0), (0, 0), (1, 0), (1, 0),
    ]  # fmt: skip


def test_a_cell_that_fails_when_it_is_measured_again_keeps_its_first_row(
    swept: Callable[..., Bench],
) -> None:
    lost = new_failure(ErrorKind.DEVICE_LOST)
    bench = swept(
        lambda task: STORM if task.attempt == 0 else QUIET,
        fails=lambda task: lost if task.attempt == 1 and task.cell_key == "a-0" else None,
    )
    assert (bench.tally.n_ok, bench.tally.n_failed) == (4, 0)
    # It is not tried alone: a cell without another one shows no ratio.
    assert [len(ids) for _, ids in bench.executor.rounds] == [2] * 4

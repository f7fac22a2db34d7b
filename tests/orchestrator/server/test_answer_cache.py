"""What is computed, remembered, left for later, or ended."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet_rows import NETS, PLACES, write_results
from waiting import wait_until

from fleetrank.foundation.lease import ReadingWatch, host_lease
from fleetrank.orchestrator.compute.child import Job, JobKind, RefusedError
from fleetrank.orchestrator.server.answer_cache import Answers, BusyError, Turn, status_of

LATENCY = Job(kind=JobKind.TABLE, name="latency")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return write_results(tmp_path / "results", nets=NETS[:5], places=PLACES[:2], n_samples=3)


@pytest.fixture
def answers(results: Path) -> Iterator[Answers]:
    found = Answers(results)
    yield found
    found.close()


def _add_sweep(answers: Answers, results: Path) -> None:
    write_results(results, nets=NETS[:5], places=PLACES[:2], n_samples=3, sweep="z-1-a", seed=9)
    wait_until(lambda: answers.remembered(LATENCY) is None, "a look at the folder")


def test_an_answer_is_remembered_until_the_results_change(answers: Answers, results: Path) -> None:
    assert answers.remembered(LATENCY) is None
    first = answers.get(LATENCY)
    assert answers.remembered(LATENCY) == first
    _add_sweep(answers, results)
    assert answers.remembered(LATENCY) is None
    second = answers.get(LATENCY)
    assert second.is_current
    assert second.tag != first.tag


def test_beside_a_measurement_the_last_answer_stands(answers: Answers, results: Path) -> None:
    first = answers.get(LATENCY)
    _add_sweep(answers, results)
    with host_lease("a measurement"):
        last = answers.get(LATENCY)
        assert (last.body, last.is_current) == (first.body, False)
    assert answers.get(LATENCY).is_current


def test_without_a_last_answer_one_waits_and_is_then_answered_beside_the_measurement(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetrank.orchestrator.server.answer_cache._REPEAT_S", 0.3)
    with host_lease("a measurement"):
        watch = ReadingWatch()
        assert answers.get(LATENCY).is_current
        assert watch.has_seen()
    assert not ReadingWatch().has_seen()


def test_a_server_that_is_busy_says_so() -> None:
    assert status_of(BusyError("m", "r")) == 503


def test_only_so_many_may_wait() -> None:
    turn, inside, done = Turn(max_waiting=1), threading.Event(), threading.Event()

    def work() -> None:
        with turn.take(5.0):
            inside.set()
            done.wait(5.0)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(5.0)
    with pytest.raises(BusyError, match="too many"), turn.take(5.0):
        pytest.fail("more than one")
    done.set()
    thread.join()


def test_no_results_is_said_and_is_no_crash(tmp_path: Path) -> None:
    answers = Answers(tmp_path / "nowhere")
    try:
        with pytest.raises(RefusedError, match="no measurements") as raised:
            answers.get(LATENCY)
        assert status_of(raised.value) == 404
    finally:
        answers.close()

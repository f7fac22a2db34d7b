"""What is computed, what the client has, and what is refused."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fleet_rows import NETS, PLACES, write_results
from starlette.requests import Request
from waiting import wait_until

from fleetrank.foundation.lease import host_lease
from fleetrank.foundation.reading_beside import ReadingWatch
from fleetrank.orchestrator.compute.jobs import Job, JobKind, RefusedError
from fleetrank.orchestrator.server import api, app
from fleetrank.orchestrator.server.answers import (
    RETRY_AFTER_S,
    Answer,
    Answers,
    BusyError,
    ComputeTurn,
    status_of,
)

LATENCY = Job(kind=JobKind.TABLE, name="latency")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return write_results(tmp_path / "results", nets=NETS[:5], places=PLACES[:2], n_samples=3)


@pytest.fixture
def answers(results: Path) -> Iterator[Answers]:
    found = Answers(results)
    yield found
    found.close()


def test_a_client_keeps_its_answer_until_the_results_change_or_a_measurement_ends(
    answers: Answers, results: Path
) -> None:
    first = answers.get(LATENCY)
    mine = f'W/"{first.tag}"'
    assert answers.had(LATENCY, "") is None
    assert answers.had(replace(LATENCY, name="transfer"), mine) is None
    had = answers.had(LATENCY, mine)
    assert had is not None
    assert (had.body, had.tag, had.is_current) == (None, first.tag, True)
    write_results(results, nets=NETS[:5], places=PLACES[:2], n_samples=3, sweep="z-1-a", seed=9)
    wait_until(lambda: answers.had(LATENCY, mine) is None, "a look at the folder")
    with host_lease("a measurement"):
        old = answers.had(LATENCY, mine)
        assert old is not None
        assert (old.fingerprint, old.is_current) == (first.fingerprint, False)
    second = answers.get(LATENCY)
    assert second.tag != first.tag
    assert second.body != first.body


def test_sql_has_no_tag_because_it_can_depend_on_the_time(answers: Answers) -> None:
    found = answers.get(Job(kind=JobKind.QUERY, name="SELECT 1", timeout_s=5, max_rows=1))
    assert found.tag is None


def test_one_waits_and_is_then_answered_beside_the_measurement(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetrank.orchestrator.server.answers._REPEAT_S", 0.3)
    with host_lease("a measurement"):
        watch = ReadingWatch()
        assert answers.get(LATENCY).is_current
        assert watch.has_seen()
    assert not ReadingWatch().has_seen()


def test_a_server_that_is_busy_says_so() -> None:
    request = Request({"type": "http", "path": "/api/tables/latency", "headers": []})
    said = asyncio.run(app._on_error(request, BusyError("m", "r")))
    assert (said.status_code, int(said.headers["retry-after"])) == (503, RETRY_AFTER_S)


def test_an_answer_says_whether_the_results_have_changed_since() -> None:
    kept = [api.sent(Answer(tag="t", fingerprint="f", is_current=one)) for one in (True, False)]
    assert [one.headers["fleetrank-current"] for one in kept] == ["true", "false"]


def test_only_so_many_may_wait() -> None:
    turn, inside, done = ComputeTurn(max_waiting=1), threading.Event(), threading.Event()

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

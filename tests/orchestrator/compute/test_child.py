"""A computing child: what it answers, and what ends it."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fleet_rows import NETS, PLACES, write_results

from fleetrank.analysis.errors import QueryError
from fleetrank.foundation.supervised_child import End
from fleetrank.orchestrator.compute.child import QUERY_GRACE_S, Child
from fleetrank.orchestrator.compute.jobs import Job, JobKind, RefusedError, error_of_child
from fleetrank.orchestrator.server.answers import status_of


def query(sql: str, timeout_s: float = 10.0) -> Job:
    return Job(kind=JobKind.QUERY, name=sql, timeout_s=timeout_s, max_rows=10)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_results(
        tmp_path_factory.mktemp("results"), nets=NETS[:5], places=PLACES[:2], n_samples=3
    )


@pytest.fixture(scope="module")
def child(results: Path) -> Iterator[Child]:
    """For all tests: where one ends its process, the next question starts another."""
    found = Child(results, memory_limit_bytes=2 << 30)
    yield found
    found.close()


def test_a_killed_child_costs_one_answer(child: Child) -> None:
    assert child.ask(query("SELECT 1 AS n"), "f", timeout_s=60).body
    process = child._child
    assert process is not None
    os.kill(process.pid, 9)
    assert process.wait(deadline_ns=time.perf_counter_ns() + 60 * 10**9) is End.ITSELF
    assert child.ask(query("SELECT 2 AS n"), "f", timeout_s=60).body == (
        b'{"rows": [{"n": 2}], "is_cut": false, "left_out": null}'
    )


def test_a_child_that_takes_too_long_is_ended(child: Child) -> None:
    child.ask(query("SELECT 1"), "f", timeout_s=60)
    slow = query("SELECT count(*) FROM range(100000000000) a, range(100000) b", timeout_s=30)
    with pytest.raises(RefusedError, match="and was ended") as raised:
        child.ask(slow, "f", timeout_s=0.3)
    assert status_of(raised.value) == 400
    assert child.ask(query("SELECT 1 AS n"), "f", timeout_s=60).body


def test_a_child_that_gets_no_core_is_not_late(child: Child) -> None:
    child.ask(query("SELECT 1"), "f", timeout_s=60)
    process = child._child
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    goes_on = threading.Timer(3.0, os.kill, (process.pid, signal.SIGCONT))
    goes_on.start()
    assert child.ask(query("SELECT 1 AS n", timeout_s=1.0), "f", timeout_s=1.0).body
    assert not goes_on.is_alive()


def test_memory_is_limited_below_what_duckdb_limits_itself(results: Path) -> None:
    small = Child(results, memory_limit_bytes=900 << 20)
    try:
        with pytest.raises(RefusedError) as raised:
            small.ask(query("SELECT repeat('abcdefgh', 90000000)"), "f", timeout_s=60)
        assert status_of(raised.value) == 400
    finally:
        small.close()


@pytest.mark.thorough
def test_a_huge_answer_is_refused(child: Child) -> None:
    with pytest.raises(RefusedError, match="more than 16 MiB"):
        child.ask(query("SELECT repeat('x', 20000000)"), "f", timeout_s=60)


def test_a_defect_is_an_answer_too(child: Child) -> None:
    with pytest.raises(RefusedError) as raised:
        child.ask(Job(kind=JobKind.TABLE, name="latency", form="nonsense"), "f", timeout_s=60)
    assert status_of(raised.value) == 500


def test_closing_ends_the_child(results: Path) -> None:
    child = Child(results, memory_limit_bytes=2 << 30)
    child.ask(query("SELECT 1"), "f", timeout_s=60)
    process = child._child
    assert process is not None
    child.close()
    assert not Path(f"/proc/{process.pid}").exists()


@pytest.mark.thorough
def test_closing_ends_a_child_that_computes_for_another_thread(results: Path) -> None:
    child = Child(results, memory_limit_bytes=2 << 30)
    child.ask(query("SELECT 1"), "f", timeout_s=60)
    slow = query("SELECT count(*) FROM range(100000000000) a, range(100000) b", timeout_s=30)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(child.ask, slow, "f", timeout_s=60)
        while not child._lock.locked():
            time.sleep(0.01)
        # The lock is taken before the question is sent: the first call may come too early.
        while not answer.done():
            child.close()
            time.sleep(0.05)
        with pytest.raises(RefusedError, match="SIGKILL"):
            answer.result()


def test_a_value_without_a_form_ends_no_child(child: Child) -> None:
    child.ask(query("SELECT 1"), "f", timeout_s=60)
    before = child._child
    with pytest.raises(RefusedError, match="outside of SQL") as raised:
        child.ask(query("SELECT DATE '5877642-06-25'"), "f", timeout_s=60)
    assert isinstance(error_of_child(raised.value), QueryError)
    child.ask(query("SELECT 1"), "f", timeout_s=60)
    assert child._child is before


@pytest.mark.thorough
def test_a_value_that_no_interrupt_stops_ends_with_the_limit_in_the_message(child: Child) -> None:
    # One call of a function; DuckDB looks at its interrupt between calls only.
    deaf = query("SELECT length(repeat('ab', 300000000).regexp_replace('(a|b)+c', '', 'g'))", 0.3)
    with pytest.raises(RefusedError, match=r"longer than 0\.3 s|needs more than"):
        child.ask(deaf, "f", timeout_s=0.3 + QUERY_GRACE_S)


def test_numbers_that_json_lacks_are_null(child: Child) -> None:
    sql = "SELECT 'nan'::DOUBLE AS a, ['inf'::FLOAT] AS b, MAP {DATE '2026-01-02': 1} AS c"
    assert child.ask(query(sql), "f", timeout_s=60).body == (
        b'{"rows": [{"a": null, "b": [null], "c": {"2026-01-02": 1}}], '
        b'"is_cut": false, "left_out": null}'
    )


def test_a_start_without_enough_memory_says_so(results: Path) -> None:
    small = Child(results, memory_limit_bytes=64 << 20, is_quiet=True)
    with pytest.raises(RefusedError, match="ended the process") as raised:
        small.ask(query("SELECT 1"), "f", timeout_s=60)
    assert "64 MiB" in raised.value.remedy
    small.close()

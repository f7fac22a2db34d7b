"""What the rows of a sweep say of how far it is."""

from fleetrank.orchestrator.dispatch.decide.tally import Tally


def row(repeat: int, attempt: int, status: str) -> dict[str, object]:
    return {
        "sweep_id": "s", "cell_key": "c", "repeat": repeat, "attempt": attempt, "status": status,
        "error_kind": None if status == "ok" else "crash", "error_is_transient": True,
        "error_message": "m", "error_remedy": "r",
    }  # fmt: skip


def test_each_repeat_counts_once() -> None:
    tries = [(0, 0, "failed"), (0, 1, "ok"), (1, 0, "ok"), (2, 0, "ok"), (3, 0, "failed")]
    tally = Tally.of([row(*one) for one in tries])
    assert (tally.n_ok, tally.n_failed) == (3, 1)


def test_a_failed_try_after_a_good_one_takes_nothing_back() -> None:
    tally = Tally.of([row(0, 0, "ok"), row(0, 1, "failed")])
    assert tally.is_measured(("c", 0))
    assert (tally.n_ok, tally.n_failed) == (1, 0)


def _failure(repeat: int, cell: str, kind: str = "timed_out") -> dict[str, object]:
    fault = {"cell_key": cell, "error_kind": kind, "error_is_transient": False}
    return row(repeat, 0, "failed") | fault


def test_reopened_failures_may_be_tried_again_and_keep_their_numbers() -> None:
    rows = [_failure(0, "c"), _failure(1, "c"), row(2, 0, "ok"), _failure(0, "other")]
    tally = Tally.of(rows)
    assert tally.n_finished == 4
    assert tally.verdict("other") is not None
    assert tally.reopen(["c"]) == 2
    assert tally.n_finished == 2
    assert [tally.is_finished(("c", repeat)) for repeat in range(3)] == [False, False, True]
    assert tally.next_attempt(("c", 0)) == 1
    assert tally.is_finished(("other", 0))
    assert tally.reopen(["other"]) == 1
    assert tally.verdict("other") is None


def test_a_repeat_that_is_measured_again_counts_even_if_that_fails() -> None:
    tally, key = Tally.of([row(0, 0, "ok")]), ("c", 0)
    tally.measure_again([key])
    assert not tally.is_finished(key)
    tally.observe(row(0, 1, "failed"))
    assert (tally.n_ok, tally.n_failed, tally.next_attempt(key)) == (1, 0, 2)
    tally.observe(row(0, 2, "ok"))
    assert tally.is_measured(key)


def test_a_verdict_counts_repeats_from_one() -> None:
    verdict = Tally.of([_failure(0, "c")]).verdict("c")
    assert verdict is not None
    assert "repeat 1 failed" in verdict.message


def test_a_cell_with_a_valid_repeat_is_never_given_up() -> None:
    rows = [row(0, 0, "ok"), _failure(1, "c")]
    for order in (rows, rows[::-1]):
        assert Tally.of(order).verdict("c") is None

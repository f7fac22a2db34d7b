"""What the rows of a sweep say of how far it is."""

from fleetrank.orchestrator.dispatch.decide.tally import Tally


def row(repeat: int, attempt: int, status: str, flags: list[str]) -> dict[str, object]:
    return {
        "sweep_id": "s", "cell_key": "c", "repeat": repeat, "attempt": attempt, "status": status,
        "flags": flags,
        "error_kind": None if status == "ok" else "crash", "error_is_transient": True,
        "error_message": "m", "error_remedy": "r",
    }  # fmt: skip


def test_only_valid_measurements_are_in_doubt_and_each_repeat_once() -> None:
    tally = Tally.of([
        row(0, 0, "failed", ["hot"]),
        row(0, 1, "ok", ["drift", "spread"]),
        row(1, 0, "ok", ["spread"]),
        row(2, 0, "ok", []),
        row(3, 0, "failed", ["hot"]),
    ])  # fmt: skip
    assert (tally.n_ok, tally.n_flagged) == (3, 2)
    assert tally.flags == (("spread", 2), ("drift", 1))


def test_a_failed_try_after_a_good_one_takes_nothing_back() -> None:
    tally = Tally.of([row(0, 0, "ok", ["spread"]), row(0, 1, "failed", ["hot"])])
    assert tally.is_measured(("c", 0))
    assert tally.flags == (("spread", 1),)

"""Which repeats are measured again: those with a cause, whatever their latency is."""

import pytest

from fleetrank.analysis.stored.disturbance import disturbed_repeats

BUSY = {"flags": ["busy_host"]}
CALM = [(ms, {}) for ms in (10.0, 10.1, 10.2, 9.9, 10.0)]
BAD = [(ms, BUSY) for ms in (25.0, 27.0, 26.0, 25.5, 26.5)]


@pytest.mark.parametrize(
    ("repeats", "again"),
    [
        (CALM, []),
        ([*BAD, *CALM], [0, 1, 2, 3, 4]),
        # A cause counts for a fast repeat too; without one no slow repeat is singled out.
        ([(30.0, {}), (10.0, BUSY), (29.0, {})], [1]),
        ([*CALM, (30.0, {}), (31.0, {})], [0, 1, 2, 3, 4, 5, 6]),
        ([(30.0, BUSY), (10.0, {})], [0, 1]),
        # They agree, and record a cause: the quota, or the use of their cores.
        ([(ms, {"flags": ["cpu_quota"]}) for ms in (10.0, 10.1)], []),
        ([(10.0, {"busy_share_before": 1.0, "logical_cores": 2})] * 2, [0, 1]),
    ],
)
def test_repeats_with_a_cause_are_measured_again_or_all_of_the_cell(
    make_attempts, repeats: list[tuple[float, dict[str, object]]], again: list[int]
) -> None:
    rows = [
        {"repeat": at, "latency_p50_ns": 1e6 * ms, **facts}
        for at, (ms, facts) in enumerate(repeats)
    ]
    # An earlier attempt does not count in place of the disturbed one.
    first = {"repeat": 0, "attempt": -1, "latency_p50_ns": 1e6}
    found = disturbed_repeats(make_attempts([first, *rows]), "s1")
    assert sorted(repeat for _, repeat in found) == again


@pytest.mark.parametrize("ms", [32.0, 3.0])
def test_a_cell_far_from_its_history_is_measured_again_in_both_directions(
    make_attempts, ms: float
) -> None:
    rows = [
        {"repeat": at, "sweep_id": sweep, "latency_p50_ns": 1e6 * value}
        for sweep, value in (("s0", 8.0), ("s1", ms))
        for at in range(3)
    ]
    assert len(disturbed_repeats(make_attempts(rows), "s1")) == 3


def test_what_took_turns_is_measured_again_together(make_attempts) -> None:
    rows = [
        {"model": model, "repeat": at, "latency_p50_ns": 1e6 * ms, "design": "rounds",
         "round_id": f"r{at}", **(BUSY if model == "a" and at == 0 else {})}
        for model, every in (("a", (20.0, 10.0, 10.0)), ("b", (5.0, 5.0, 5.0)))
        for at, ms in enumerate(every)
    ]  # fmt: skip
    found = disturbed_repeats(make_attempts(rows), "s1")
    assert sorted(found) == [(f"{model} on d1/onnx/b1/t1", 0) for model in "ab"]

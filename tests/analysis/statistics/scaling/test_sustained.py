"""Table `scaling` with `part=sustained`: throughput over wall time, drift and slowing, by hand."""

from collections.abc import Callable, Iterable

import numpy as np
import polars as pl
import pytest
from wording import has

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.statistics.scaling.sustained import thirds, windows
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.tables import make_table

Make = Callable[[Iterable[dict[str, object]]], pl.LazyFrame]
MS = 1_000_000


def _row(samples_ms: Iterable[float], **more: object) -> dict[str, object]:
    samples = [round(ms * MS) for ms in samples_ms]
    return {
        "stop_reason": "min_time", "samples_ns": samples, "sample_count": len(samples),
        "latency_p50_ns": float(np.median(samples)), "latency_mean_ns": float(np.mean(samples)),
        "sustained_ns": sum(samples) + 100 * MS, "batch": 4, "tokens_per_inference": None,
    } | more  # fmt: skip


def _one(frame: pl.LazyFrame) -> dict[str, object]:
    (row,) = make_table("scaling/sustained", frame, Selection()).frame.to_dicts()
    return row


def test_throughput_is_items_over_wall_time(make_attempts: Make) -> None:
    row = _one(make_attempts([_row([100.0] * 9)]))
    assert row["duration_s"] == pytest.approx(1.0)
    assert row["items_per_s"] == pytest.approx(9 * 4 / 1.0)
    assert row["first_third_per_s"] == pytest.approx(40)
    assert row["drift"] == pytest.approx(0)
    assert (row["slowed_after_s"], row["basis"], row["reason"]) == (None, "wall clock", None)


def test_drift_is_the_last_third_over_the_first(make_attempts: Make) -> None:
    # 6 s in thirds of 2 s: 20 runs of 100 ms, 20 of 100 ms, 16 of 125 ms.
    row = _one(make_attempts([_row([100.0] * 40 + [125.0] * 16)]))
    assert row["first_third_per_s"] == pytest.approx(40)
    assert row["last_third_per_s"] == pytest.approx(32)
    assert row["drift"] == pytest.approx(-0.2)
    assert row["slowed_after_s"] == pytest.approx(4.0, abs=0.2)


def test_tokens_are_the_items_of_a_model_of_text(make_attempts: Make) -> None:
    rows = [_row([100.0] * 9, workload="decode@64", tokens_per_inference=4)]
    row = _one(make_attempts(rows))
    assert (row["item"], row["workload"]) == ("token", "decode@64")


def test_a_tool_without_samples_has_a_rate_and_no_drift(make_attempts: Make) -> None:
    rows = [_row([50.0] * 9, samples_ns=None, sustained_ns=None, throttled_after_ns=2_000 * MS)]
    row = _one(make_attempts(rows))
    assert row["items_per_s"] == pytest.approx(80)
    assert (row["drift"], row["throttled_after_s"]) == (None, 2.0)
    assert has(row["basis"], "count x mean")
    assert has(row["reason"], "no samples")


def test_few_runs_have_no_thirds(make_attempts: Make) -> None:
    row = _one(make_attempts([_row([500.0] * 5)]))
    assert row["drift"] is None
    assert has(row["reason"], "5", "6")
    assert row["items_per_s"] == pytest.approx(20 / 2.6)


def test_ordinary_rows_are_no_sustained_runs(make_attempts: Make) -> None:
    with pytest.raises(NoDataError) as raised:
        make_table("scaling/sustained", make_attempts([_row([1.0] * 9, stop_reason="half_width")]),
                   Selection())  # fmt: skip
    assert "min_time_s: 60" in raised.value.remedy


def test_every_repeat_is_a_row(make_attempts: Make) -> None:
    rows = [_row([100.0] * 9, repeat=n) for n in range(3)]
    frame = make_table("scaling/sustained", make_attempts(rows), Selection()).frame
    assert frame["repeat"].to_list() == [0, 1, 2]


def test_windows_hold_every_run_once() -> None:
    samples = np.random.default_rng(2).lognormal(0, 0.5, 1000) * 1e7
    ends = np.cumsum(samples) / 1e9
    starts, rates = windows(ends)
    durations = np.diff(np.concatenate([starts, [ends[-1]]]))
    assert float((rates * durations).sum()) == pytest.approx(1000)
    assert len(starts) == 30


def test_a_long_run_is_not_a_window_without_runs() -> None:
    _, rates = windows(np.cumsum([0.1] * 10 + [3.0] + [0.1] * 10))
    assert float(rates.min()) > 0.3


def test_a_slow_moment_in_the_middle_is_no_slowing() -> None:
    samples = np.full(300, 1e7)
    samples[100:130] = 5e7
    assert thirds(samples).slowed_after_s is None


def test_rates_of_thirds_against_counting_by_a_loop() -> None:
    samples = np.random.default_rng(4).lognormal(0, 0.3, 500) * 1e7
    total, first_n, first_s, last_n, last_s, now = samples.sum(), 0, 0.0, 0, 0.0, 0.0
    for one in samples:
        now += one
        if now <= total / 3:
            first_n, first_s = first_n + 1, first_s + one
        elif now > 2 * total / 3:
            last_n, last_s = last_n + 1, last_s + one
    found = thirds(samples)
    assert found.first_per_s == pytest.approx(first_n / first_s * 1e9)
    assert found.last_per_s == pytest.approx(last_n / last_s * 1e9)


@pytest.mark.slow
def test_a_newer_sustained_sweep_does_not_replace_ordinary_repeats(make_attempts: Make) -> None:
    ordinary = [_row([2.0] * 9, stop_reason="half_width", sweep_id="a", repeat=n) for n in range(5)]
    sustained = _row([3.0] * 9, sweep_id="b", started_utc=5)
    frame = make_attempts([*ordinary, sustained])
    (cell,) = make_table("latency", frame, Selection()).frame.to_dicts()
    assert (cell["latency_p50_ms"], cell["n_repeats"]) == (2.0, 5)
    assert _one(frame)["first_third_per_s"] == pytest.approx(4 / 0.003)
    (alone,) = make_table("latency", make_attempts([sustained]), Selection()).frame.to_dicts()
    assert alone["latency_p50_ms"] == 3.0

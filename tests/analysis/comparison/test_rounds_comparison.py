"""Models that took turns are compared inside their rounds."""

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats
from wording import has

from fleetrank.analysis.arrays.confidence_sequence import reach
from fleetrank.analysis.arrays.two_samples import Limits, Verdict
from fleetrank.analysis.comparison.rounds_comparison import (
    RoundsComparison,
    compare_rounds,
    rounds_sentences,
)
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.rounds import round_values
from fleetrank.analysis.statistics.pairs.pairs import faster
from fleetrank.analysis.stopping_rule import StoppingRule, SweepQuestion
from fleetrank.analysis.stored.selection import Selection

LIMITS = Limits(margin=0.05, alpha=0.05)
RULE = StoppingRule(question=SweepQuestion.ORDER, margin=0.05, first=3, most=20, budget_s=60.0)
BLOCKS, SAMPLES = 5, 4


def compared(
    make_attempts,
    ratio: float,
    *,
    rounds: int = 10,
    noise: float = 0.01,
    seed: int = 0,
    rule: StoppingRule | None = None,
) -> RoundsComparison:
    """Simulated rounds on a host whose speed changes by 20 % between blocks."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(rounds):
        weather = random.normal(0.0, 0.2, (BLOCKS, 1))
        for model, level in (("a", 1e6), ("b", 1e6 * ratio)):
            logs = weather + random.normal(0.0, noise) + random.normal(0, 0.001, (BLOCKS, SAMPLES))
            samples = (level * np.exp(logs)).astype(int).ravel().tolist()
            rows.append({
                "model": model, "repeat": number, "round_id": f"r{number}",
                "samples_ns": samples, "block_sample_counts": [SAMPLES] * BLOCKS,
                "latency_p50_ns": float(np.median(samples)), "design": "rounds",
                "block_medians_ns": np.median(np.reshape(samples, (BLOCKS, SAMPLES)), axis=1)
                .astype(int).tolist(),
                "stopping_rule": rule and str(rule),
            })  # fmt: skip
    return compare_rounds(make_attempts(rows), ("a", "b"), LIMITS)


def test_the_ratio_is_taken_inside_each_round(make_attempts) -> None:
    found = compared(make_attempts, 1.10, noise=0.0)
    assert found.ratio == pytest.approx(1.10, rel=0.001)
    assert found.latency_b_ms / found.latency_a_ms == pytest.approx(found.ratio)
    assert found.rounds == 10
    # The medians of whole processes meet different states of the host.
    assert found.round_spread is not None
    assert found.round_spread < 0.001


@pytest.mark.parametrize("n", [2, 8])
def test_the_figures_are_those_of_faster_and_of_students_tests(make_attempts, n: int) -> None:
    """Another sweep with rounds, a noisy one, changes nothing about the first."""
    random = np.random.default_rng(3)
    rows = [
        {"model": model, "repeat": number, "round_id": f"r{number}", "sweep_id": sweep,
         "design": "rounds", "latency_p50_ns": level * math.exp(random.normal(0.0, noise))}
        for sweep, pair, noise in (("s1", ("a", "b"), 0.03), ("s2", ("c", "d"), 0.3))
        for number in range(n)
        for model, level in zip(pair, (1e9, 1.02e9), strict=True)
    ]  # fmt: skip
    frame = make_attempts(rows)
    of_ab = frame.filter(pl.col("sweep_id") == "s1")
    found = compare_rounds(of_ab, ("a", "b"), LIMITS)
    here = faster(Session(frame, Selection()), "a", "b").here
    said = rounds_sentences(found)
    is_b = here.model_a == "b"
    ratio, low, high = (1 / one if is_b else one for one in (here.ratio, here.low, here.high))
    if is_b:
        low, high = high, low
    assert (found.ratio, found.ratio_low, found.ratio_high) == pytest.approx((ratio, low, high))
    assert has(said, f"{here.model_a} is", f"{here.ratio:.3f}", f"as {here.model_b} here",
               f"{here.low:.3f} to {here.high:.3f}", f"{n} rounds")  # fmt: skip
    adjusted = round_values(of_ab, of_ab).adjusted.sort("cell_key", "repeat")["adjusted_ns"]
    a, b = np.log(adjusted.to_numpy()).reshape(2, n)
    latencies_ms = (found.latency_a_ms, found.latency_b_ms)
    assert latencies_ms == pytest.approx(np.exp([a.mean(), b.mean()]) / 1e6)
    test = stats.ttest_ind(b, a)
    assert found.p_value == pytest.approx(test.pvalue)
    assert found.ratio_low == pytest.approx(math.exp(test.confidence_interval(0.95).low))
    bound = math.log1p(LIMITS.margin)
    below = stats.ttest_ind(b - bound, a, alternative="less").pvalue
    above = stats.ttest_ind(b + bound, a, alternative="greater").pvalue
    assert found.p_same_adjusted == pytest.approx(min(2 * max(below, above), 1))


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(1.2, Verdict.SLOWER), (0.8, Verdict.FASTER), (1.0, Verdict.SAME)],
)
def test_a_clear_ratio_has_its_verdict(make_attempts, ratio: float, verdict: Verdict) -> None:
    found = compared(make_attempts, ratio)
    assert found.verdict is verdict
    assert found.more_repeats is None


def test_a_noisy_ratio_is_undecided_and_says_how_many_rounds_decide_it(make_attempts) -> None:
    found = compared(make_attempts, 1.0, noise=0.08, rounds=5)
    assert found.verdict is Verdict.UNDECIDED
    assert found.more_repeats is not None
    assert any(str(found.more_repeats) in sentence for sentence in rounds_sentences(found))


def test_of_models_until_decided_the_interval_is_that_of_their_looks(make_attempts) -> None:
    fixed = compared(make_attempts, 1.1)
    looked = compared(make_attempts, 1.1, rule=RULE)
    assert looked.ratio == fixed.ratio
    assert None not in (looked.ratio_high, fixed.ratio_high)
    widths = [math.log(one.ratio_high / one.ratio) for one in (looked, fixed)]
    degrees = np.array(18.0)  # of both models, whose processes vary alike
    expected = reach(np.array(1.0), 10, degrees, 0.05) * math.sqrt(10) / stats.t.ppf(0.975, 18)
    assert widths[0] / widths[1] == pytest.approx(float(expected), rel=0.2)
    assert has(looked.notes, "Until decided", "at most 20 rounds")


def test_one_round_has_a_ratio_and_no_interval(make_attempts) -> None:
    found = compared(make_attempts, 1.3, rounds=1)
    assert (found.verdict, found.ratio_low, found.p_value) == (Verdict.UNDECIDED, None, None)
    assert found.round_spread is None
    assert "no interval" in " ".join(rounds_sentences(found))


def test_a_file_that_takes_integers_is_compared_and_said(make_attempts) -> None:
    rows = [
        {"model": model, "repeat": number, "round_id": f"r{number}", "design": "rounds",
         "latency_p50_ns": 1e6, "border": border}
        for model, border in (("a", "float"), ("b", "int8 in, int8 out"))
        for number in range(3)
    ]  # fmt: skip
    found = compare_rounds(make_attempts(rows), ("a", "b"), LIMITS)
    assert has(rounds_sentences(found), "UNLIKE BORDERS", "float; int8 in, int8 out")
    alike = make_attempts([row | {"border": "float"} for row in rows])
    assert compare_rounds(alike, ("a", "b"), LIMITS).notes == ()


def test_a_round_in_which_one_failed_is_left_out(make_attempts) -> None:
    rows = [
        {"model": model, "repeat": number, "round_id": f"r{number}", "samples_ns": [100],
         "block_sample_counts": [1], "latency_p50_ns": 100.0,
         "status": "failed" if (model, number) == ("b", 2) else "ok"}
        for number in range(4) for model in ("a", "b")
    ]  # fmt: skip
    assert compare_rounds(make_attempts(rows), ("a", "b"), LIMITS).rounds == 3
    with pytest.raises(NoDataError):
        compare_rounds(make_attempts(rows).filter(pl.col("model") == "a"), ("a", "b"), LIMITS)

"""Ratios of two samples and plans: statsmodels, published sample sizes and brute force."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats

from fleetrank.analysis.arrays.planned_repeats import (
    RepeatPlan,
    change_power,
    detectable_ratio,
    first_enough,
    repeats_to_decide,
    same_power,
)
from fleetrank.analysis.arrays.two_samples import (
    MAX_PLANNED,
    Limits,
    LogRatios,
    Verdict,
    figures_of,
    log_ratios,
    ratios_of,
    shown,
)

A, B = np.array([100, 101, 99, 100.5, 99.5]), np.array([102, 103.5, 101, 102.2, 100.9, 103])
C, D = np.array([100.0, 112, 95, 104, 99, 97, 108]), np.array([101.0, 99, 103])
LIMITS = Limits(margin=0.05, alpha=0.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """statsmodels 0.15.0: `ttost_ind(log b, log a, -d, d, usevar="unequal")`, d = log(1 + margin);
    the interval by `CompareMeans.tconfint_diff(alpha=0.1, usevar="unequal")`."""

    sides: tuple[np.ndarray, np.ndarray]
    margin: float
    p_values: tuple[float, float]
    degrees: float
    interval: tuple[float, float]


REFERENCES = [
    Reference(sides=sides, margin=margin, p_values=p_values, degrees=degrees, interval=interval)
    for sides, margin, p_values, degrees, interval in (
        ((A, B), 0.05, (0.0003138876721665088, 2.3966527948766964e-07), 8.975154463266401,
         (1.010797714194359, 1.0312671688041921)),
        ((A, B), 0.02, (0.5678510018293021, 2.0372459400166763e-05), 8.975154463266401,
         (1.010797714194359, 1.0312671688041921)),
        ((C, D), 0.1, (0.0016037672973347836, 0.004850602524224344), 7.915672981465476,
         (0.9447412208597422, 1.037836645835086)),
        ((C, D), 0.05, (0.02447883118263672, 0.08090698230098624), 7.915672981465476,
         (0.9447412208597422, 1.037836645835086)),
        ((A, C), 0.1, (0.007452193841511018, 0.001013787808849939), 6.29431516110607,
         (0.976104617780714, 1.0656453085611735)),
    )
]  # fmt: skip


@pytest.mark.parametrize("reference", REFERENCES)
def test_two_one_sided_tests_are_those_of_statsmodels(reference: Reference) -> None:
    a, b = (np.log(side) for side in reference.sides)
    error = math.sqrt(a.var(ddof=1) / a.size + b.var(ddof=1) / b.size)
    found = LogRatios(
        estimates=np.array([b.mean() - a.mean()]), errors=np.array([error]),
        degrees=np.array([reference.degrees]),
    )  # fmt: skip
    p_values = [float(one[0]) for one in found.p_margin(math.log1p(reference.margin))]
    assert p_values == pytest.approx(reference.p_values)
    reach = found.reach(0.1)
    ends = np.exp([found.estimates - reach, found.estimates + reach]).ravel()
    assert ends.tolist() == pytest.approx(reference.interval)
    # Twice the larger p is below the level exactly where the interval lies inside the margin.
    is_inside = bool((np.abs(np.log(ends)) < math.log1p(reference.margin)).all())
    assert is_inside == (2 * max(p_values) < 0.1)


def test_of_equal_samples_in_turns_it_is_students_test() -> None:
    both = figures_of([A, 1.02 * A[::-1]], [True, True], ["", ""])
    found = ratios_of(both.at([0]), both.at([1]))
    test = stats.ttest_ind(np.log(1.02 * A), np.log(A))
    assert found.p_different()[0] == pytest.approx(test.pvalue)
    low = test.confidence_interval(0.95).low
    assert found.estimates[0] - found.reach()[0] == pytest.approx(low)


def test_the_interval_is_the_root_of_the_sum_of_the_squares_of_both() -> None:
    reach, degrees = np.array([0.1, 0.2]), np.array([4.0, 20.0])
    found = log_ratios(np.zeros(1), *((reach[[at]], degrees[[at]]) for at in (0, 1)))
    assert found.reach() == pytest.approx(math.hypot(0.1, 0.2))
    assert 4 < found.degrees[0] < 20
    unknown = log_ratios(np.zeros(1), (reach[:1], degrees[:1]), (np.array([np.nan]), np.zeros(1)))
    assert np.isnan(unknown.reach()).all()


def test_a_figure_is_a_median_and_in_turns_a_mean() -> None:
    sample = np.array([1.0, 2.0, 10.0])
    found = figures_of([sample, sample, np.array([0.0, 1.0])], [False, True, False], ["a"] * 3)
    assert np.exp(found.logs[:2]).tolist() == pytest.approx([2.0, 20 ** (1 / 3)])
    assert np.isnan(found.logs[2])
    apart = figures_of([sample, np.array([5.0])], [False, False], ["a", "b"])
    assert apart.degrees.tolist() == [2, 0]
    assert np.isnan(apart.reach[1])
    with pytest.raises(ValueError, match="NaN"):
        figures_of([np.array([np.nan, 1, 2])], [False], ["a"])


def test_what_is_shown_is_read_off_the_interval() -> None:
    """Of intervals of 5 % to each side: inside the margin, beyond 1, and neither."""
    logs = np.array([0.01, 0.07, -0.07, 0.03, np.nan])
    found = LogRatios(estimates=logs, errors=np.full(5, 0.05 / 1.96), degrees=np.full(5, 1e6))
    p_same = 2 * np.maximum(*found.p_margin(0.062))
    said = shown(found, found.p_different(), p_same).tolist()
    assert said == [Verdict.SAME, Verdict.SLOWER, Verdict.FASTER, "undecided", "undecided"]
    far = shown(found, found.p_different(), p_same, least=0.08).tolist()
    assert far == [Verdict.SAME, *["undecided"] * 4]


def test_without_any_variance_the_estimate_decides() -> None:
    both = figures_of([np.full(5, 0.1), np.full(5, 0.102)], [False, False], ["", ""])
    found = ratios_of(both.at([0]), both.at([1]))
    assert found.errors[0] == 0
    assert [float(one[0]) for one in found.p_margin(math.log(1.05))] == [0, 0]
    assert [float(one[0]) for one in found.p_margin(math.log(1.01))] == [1, 0]
    assert found.p_different()[0] == 0


LEVEL = replace(LIMITS, alpha=0.1)
"""Two one-sided tests at 5 %."""


def plan(estimate: float, spread: float, n: int) -> RepeatPlan:
    """Of n processes a side with this spread, in turns."""
    return RepeatPlan(
        estimate=estimate, error=spread * math.sqrt(2 / n), degrees=2.0 * (n - 1),
        variances=(spread**2, spread**2), n=n, took_turns=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cv", "n", "power"), [(0.2, 20, 0.834680), (0.25, 28, 0.807439), (0.3, 40, 0.815845)]
)
def test_power_is_that_of_published_bioequivalence_studies(cv: float, n: int, power: float) -> None:
    """PowerTOST 1.5, `sampleN.TOST(CV, theta0 = 0.95)`: crossover of n subjects, margin 1.25.

    Its standard error is s sqrt(2 / n) with n - 2 degrees of freedom: that of n / 2 a side whose
    variances are s^2 / 2.
    """
    found = plan(math.log(0.95), math.sqrt(math.log1p(cv**2) / 2), 2)
    limits = Limits(margin=0.25, alpha=0.1)
    assert same_power(math.log(0.95), found, n // 2, limits) == pytest.approx(power, abs=2e-5)
    fewest = first_enough(
        lambda m: same_power(math.log(0.95), found, m, limits), range(2, MAX_PLANNED)
    )
    assert fewest == n // 2


def _exact_power(truth: float, variance: float, n: int) -> float:
    """Power of two one-sided tests as an integral over the estimated variance."""
    degrees = 2 * (n - 1)
    shares = (np.arange(20_000) + 0.5) / 20_000
    spread = np.sqrt(stats.chi2.ppf(shares, degrees) / degrees)
    error = math.sqrt(2 * variance / n)
    reach = stats.t.ppf(0.95, degrees) * spread
    high = stats.norm.cdf((LIMITS.bound - truth) / error - reach)
    low = stats.norm.cdf((-LIMITS.bound - truth) / error + reach)
    return float(np.maximum(high - low, 0).mean())


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [1.0, 1.02, 1.05, 1.1])
@pytest.mark.parametrize(("noise", "n"), [(0.01, 3), (0.01, 5), (0.03, 10), (0.03, 20)])
def test_power_is_the_exact_integral_where_it_matters(ratio: float, noise: float, n: int) -> None:
    exact = _exact_power(math.log(ratio), noise**2, n)
    found = same_power(math.log(ratio), plan(0.0, noise, 2), n, LEVEL)
    assert found == pytest.approx(exact, abs=0.005)


def test_planned_repeats_are_the_fewest_that_reach_the_power() -> None:
    found = plan(math.log(1.01), 0.06, 7)
    n = repeats_to_decide(found, LIMITS)
    assert n is not None
    # Half the margin is in the interval, and needs more repeats than the estimate of 1 %.
    powers = [same_power(LIMITS.bound / 2, found, m, LIMITS) for m in (n - 1, n)]
    assert powers[0] < 0.8 <= powers[1]
    assert repeats_to_decide(plan(math.log(1.01), 0.01, 20), LIMITS) == 21
    assert repeats_to_decide(found, Limits(margin=0.0101, alpha=0.05)) is None


def test_a_precise_estimate_is_planned_at_itself() -> None:
    found = plan(math.log(1.04), 0.008, 5)
    n = repeats_to_decide(found, LIMITS)
    assert n is not None
    powers = [same_power(math.log(1.04), found, m, LIMITS) for m in (n - 1, n)]
    assert powers[0] < 0.8 <= powers[1]


@pytest.mark.parametrize(("n", "alpha"), [(5, 0.05), (9, 0.01)])
def test_a_change_is_found_as_often_as_planned(n: int, alpha: float) -> None:
    """Student's test of two samples, and what a plan says of it."""
    rng, found = np.random.default_rng(n), plan(0.0, 0.05, n)
    truth, limits = math.log(1.12), Limits(margin=0.05, alpha=alpha)
    p = stats.ttest_ind(rng.normal(truth, 0.05, (4000, n)), rng.normal(0, 0.05, (4000, n)), axis=1)
    share = (p.pvalue <= alpha).mean()
    outside = stats.norm.sf((limits.bound - truth) / (0.05 * math.sqrt(2 / n)))
    assert change_power(truth, found, n, limits) == pytest.approx(min(share, outside), abs=0.03)
    ratio = math.log(detectable_ratio(found, alpha))
    p = stats.ttest_ind(rng.normal(ratio, 0.05, (4000, n)), rng.normal(0, 0.05, (4000, n)), axis=1)
    assert (p.pvalue <= alpha).mean() == pytest.approx(0.8, abs=0.04)

"""Two one-sided tests and plans: statsmodels, published sample sizes and brute force."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fleetrank.analysis.arrays.significance import (
    MAX_PLANNED,
    Limits,
    LogRatio,
    change_power,
    detectable_ratio,
    first_enough,
    log_ratio,
    mann_whitney,
    one_sided_p,
    ratio_interval,
    repeats_to_decide,
    same_power,
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
    found = log_ratio(*reference.sides)
    assert found is not None
    assert one_sided_p(found, reference.margin) == pytest.approx(reference.p_values)
    assert found.degrees == pytest.approx(reference.degrees)
    assert ratio_interval(found, 0.05) == pytest.approx(reference.interval)


@pytest.mark.parametrize(
    ("cv", "n", "power"), [(0.2, 20, 0.834680), (0.25, 28, 0.807439), (0.3, 40, 0.815845)]
)
def test_power_is_that_of_published_bioequivalence_studies(cv: float, n: int, power: float) -> None:
    """PowerTOST 1.5, `sampleN.TOST(CV, theta0 = 0.95)`: crossover of n subjects, margin 1.25.

    Its standard error is s sqrt(2 / n) with n - 2 degrees of freedom: that of n / 2 a side whose
    variances are s^2 / 2.
    """
    variance = math.log1p(cv**2) / 2
    found = LogRatio(
        estimate=math.log(0.95), variance_a=variance, variance_b=variance, standard_error=0.0,
        degrees=1.0,
    )  # fmt: skip
    limits = Limits(margin=0.25, alpha=0.05)
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
    found = LogRatio(
        estimate=0.0, variance_a=noise**2, variance_b=noise**2, standard_error=1.0, degrees=1.0
    )
    exact = _exact_power(math.log(ratio), noise**2, n)
    assert same_power(math.log(ratio), found, n, LIMITS) == pytest.approx(exact, abs=0.005)


@given(st.floats(0.7, 1.4), st.integers(3, 8), st.integers(3, 8), st.integers(0, 1000))
def test_both_sides_exchange_with_their_order(factor, n_a, n_b, seed) -> None:
    rng = np.random.default_rng(seed)
    a, b = np.exp(rng.normal(0, 0.05, n_a)), factor * np.exp(rng.normal(0, 0.05, n_b))
    there, back = log_ratio(a, b), log_ratio(b, a)
    assert there is not None
    assert back is not None
    assert one_sided_p(there, 0.05) == pytest.approx(one_sided_p(back, 0.05)[::-1])
    low, high = ratio_interval(there, 0.05)
    assert (1 / high, 1 / low) == pytest.approx(ratio_interval(back, 0.05))
    # Both p are below the level exactly where the interval lies inside the margin.
    is_inside = low > 1 / 1.05 and high < 1.05
    assert is_inside == (max(one_sided_p(there, 0.05)) < 0.05)


def test_without_any_variance_the_estimate_decides() -> None:
    found = log_ratio(np.full(5, 0.1), np.full(5, 0.102))
    assert found is not None
    assert found.standard_error == 0
    assert one_sided_p(found, 0.05) == (0, 0)
    assert one_sided_p(found, 0.01) == (1, 0)
    assert repeats_to_decide(found, Limits(margin=0.01, alpha=0.05), least=3) == 4
    assert same_power(0.0, found, 3, LIMITS) == 1


def test_too_few_processes_or_a_latency_of_0_have_no_ratio() -> None:
    assert log_ratio(A[:2], B) is None
    assert log_ratio(A, np.array([0.0, 1, 2])) is None
    with pytest.raises(ValueError, match="NaN"):
        log_ratio(A, np.array([np.nan, 1, 2]))


def test_planned_repeats_are_the_fewest_that_reach_the_power() -> None:
    found = log_ratio(C, C * 1.01)
    assert found is not None
    n = repeats_to_decide(found, LIMITS, least=3)
    assert n is not None
    # Half the margin is in the interval, and needs more repeats than the estimate of 1 %.
    powers = [same_power(LIMITS.bound / 2, found, m, LIMITS) for m in (n - 1, n)]
    assert powers[0] < 0.8 <= powers[1]
    assert repeats_to_decide(found, LIMITS, least=n + 4) == n + 4
    assert repeats_to_decide(found, Limits(margin=0.0101, alpha=0.05), least=3) is None


def test_a_precise_estimate_is_planned_at_itself() -> None:
    noise = 0.01 * np.array([-1, -0.5, 0, 0.5, 1])
    found = log_ratio(np.exp(noise), 1.04 * np.exp(noise))
    assert found is not None
    n = repeats_to_decide(found, LIMITS, least=3)
    assert n is not None
    powers = [same_power(math.log(1.04), found, m, LIMITS) for m in (n - 1, n)]
    assert powers[0] < 0.8 <= powers[1]


@pytest.mark.slow
def test_a_change_is_planned_with_the_rank_test_that_finds_it() -> None:
    rng = np.random.default_rng(4)
    variance, truth, n = 0.05**2, math.log(1.12), 9
    found = LogRatio(
        estimate=truth, variance_a=variance, variance_b=variance, standard_error=1.0, degrees=1.0
    )
    a, b = rng.normal(0, 0.05, (1000, n)), rng.normal(truth, 0.05, (1000, n))
    hits = [
        mann_whitney(x, y)[1] <= 0.05 and np.median(y) - np.median(x) >= LIMITS.bound
        for x, y in zip(a, b, strict=True)
    ]
    assert np.mean(hits) == pytest.approx(change_power(truth, found, n, LIMITS), abs=0.06)
    assert change_power(truth, found, 3, LIMITS) == 0
    assert change_power(math.log(1.051), found, MAX_PLANNED, LIMITS) < 0.7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_a", "n_b", "alpha"),
    [(5, 5, 0.05), (5, 7, 0.01), pytest.param(40, 40, 0.05, marks=pytest.mark.thorough)],
)
def test_the_detectable_ratio_is_found_in_four_of_five_comparisons(n_a, n_b, alpha) -> None:
    found = LogRatio(
        estimate=0.0, variance_a=0.03**2, variance_b=0.03**2, standard_error=1.0, degrees=1.0
    )
    ratio = detectable_ratio(found, n_a, n_b, alpha)
    assert ratio is not None
    rng = np.random.default_rng(n_a)
    p_values = [
        mann_whitney(
            np.exp(rng.normal(0, 0.03, n_a)), ratio * np.exp(rng.normal(0, 0.03, n_b))
        )[1]
        for _ in range(1500)
    ]  # fmt: skip
    assert (np.array(p_values) <= alpha).mean() == pytest.approx(0.8, abs=0.04)


def test_too_few_processes_for_the_level_detect_nothing() -> None:
    found = log_ratio(A, A)
    assert found is not None
    # Complete separation of 5 and 5 has p = 2 / 252.
    assert detectable_ratio(found, 5, 5, 0.0079) is None
    assert detectable_ratio(found, 5, 5, 0.008) is not None
    assert detectable_ratio(found, 4, 9, 0.05) is None

"""Intervals that hold at every look together."""

import numpy as np
import pytest
from scipy import integrate, stats

from fleetrank.analysis.arrays.confidence_sequence import EFFECT, looks_needed, reach


def mixture(t: float, n: int) -> float:
    """The likelihood ratio of t of n values: effects of variance `EFFECT` against none."""

    def weighed(effect: float) -> float:
        spread = np.sqrt(EFFECT)
        return stats.nct.pdf(t, n - 1, np.sqrt(n) * effect) * stats.norm.pdf(effect, 0, spread)

    whole, _ = integrate.quad(weighed, -30, 30, limit=500)
    return whole / stats.t.pdf(t, n - 1)


@pytest.mark.parametrize(("n", "alpha"), [(4, 0.05), (8, 0.05), (15, 0.01)])
def test_at_the_end_of_the_interval_the_mixture_is_one_over_alpha(n: int, alpha: float) -> None:
    t = float(reach(np.array(1.0), n, np.array(n - 1.0), alpha)) * np.sqrt(n)
    assert mixture(t, n) == pytest.approx(1 / alpha, rel=1e-3)


def test_all_looks_together_miss_as_seldom_as_said() -> None:
    """Student's own interval would miss at some of 38 looks in a third of the cases."""
    random = np.random.default_rng(0)
    values = random.normal(0, 2, (4000, 40))
    missed = np.zeros(4000, dtype=bool)
    usual = missed.copy()
    for n in range(3, 41):
        mean, variance = values[:, :n].mean(axis=1), values[:, :n].var(axis=1, ddof=1)
        degrees = np.full(4000, n - 1.0)
        missed |= np.abs(mean) > reach(variance, n, degrees, 0.05)
        usual |= np.abs(mean) > stats.t.ppf(0.975, n - 1) * np.sqrt(variance / n)
    assert usual.mean() > 0.2
    assert missed.mean() < 0.05


def test_two_values_show_nothing() -> None:
    assert np.isinf(reach(np.array(1.0), 2, np.array(1.0), 0.05))


def test_so_many_further_values_make_it_narrow_enough() -> None:
    more = looks_needed(0.3, (1.0, 9.0), 10, 0.05)
    assert more is not None
    widths = [
        float(reach(np.array(1.0), 10 + n, np.array(9.0 + n), 0.05)) for n in (more - 1, more)
    ]
    assert widths[1] <= 0.3 < widths[0]
    assert looks_needed(1e-6, (1.0, 9.0), 10, 0.05) is None
    assert looks_needed(9.0, (1.0, 9.0), 10, 0.05) == 1

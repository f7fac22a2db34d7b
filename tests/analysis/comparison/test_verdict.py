"""Verdicts on two samples: exactly one applies, whatever the unit and the order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.analysis.arrays.two_samples import Limits, Verdict, figures_of
from fleetrank.analysis.comparison.verdict import Change, verdicts

LIMITS = Limits(margin=0.05, alpha=0.05)
OPPOSITE = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}


def judged(a: np.ndarray, b: np.ndarray, limits: Limits = LIMITS) -> Change:
    return changes([(a, b)], limits)[0]


def changes(pairs, limits: Limits) -> tuple[Change, ...]:
    """Each pair alone says how far its processes spread."""
    names = [f"{at}" for at in range(len(pairs))]
    found = figures_of([pair[side] for side in (0, 1) for pair in pairs],
                       [False] * 2 * len(pairs), names * 2)  # fmt: skip
    return verdicts(found.at(slice(len(pairs))), found.at(slice(len(pairs), None)), limits)


samples = st.builds(
    lambda seed, n_a, n_b, noise, factor: (
        np.exp(np.random.default_rng(seed).normal(0, noise, n_a)),
        factor * np.exp(np.random.default_rng(seed + 1).normal(0, noise, n_b)),
    ),
    st.integers(0, 10_000),
    st.integers(1, 8),
    st.integers(1, 8),
    st.sampled_from([0.0, 0.01, 0.03, 0.1]),
    st.sampled_from([0.8, 0.97, 1.0, 1.02, 1.04, 1.06, 1.3]),
)


@given(samples)
def test_the_other_order_gives_the_opposite_verdict(pair) -> None:
    there, back = judged(*pair), judged(*pair[::-1])
    assert back.verdict is OPPOSITE.get(there.verdict, there.verdict)
    assert back.more_repeats == there.more_repeats
    assert (back.detectable_ratio or 0) == pytest.approx(there.detectable_ratio or 0, rel=0.05)


@given(samples, st.sampled_from([1e-3, 7.0, 1e6]))
def test_the_unit_does_not_matter(pair, factor: float) -> None:
    assert judged(*pair).verdict is judged(*(factor * side for side in pair)).verdict


@given(samples)
def test_each_verdict_has_its_evidence(pair) -> None:
    found = judged(*pair)
    if found.verdict in OPPOSITE:
        assert found.p_value is not None
        assert found.p_value <= 0.05
        assert not 1 / 1.05 < found.ratio < 1.05
    elif found.verdict is Verdict.SAME:
        assert found.ratio_low > 1 / 1.05
        assert found.ratio_high < 1.05
    else:
        assert found.verdict is Verdict.UNDECIDED
        assert found.reason
    assert (found.more_repeats is None) or found.verdict is Verdict.UNDECIDED


@given(samples)
def test_a_wider_margin_never_loses_a_sameness(pair) -> None:
    wide = judged(*pair, Limits(margin=0.1, alpha=0.05))
    if judged(*pair).verdict is Verdict.SAME:
        assert wide.verdict is Verdict.SAME


def test_one_more_claim_is_planned_at_the_level_that_it_has_among_many() -> None:
    noisy = np.array([100, 103, 98, 101, 99, 97.0])
    alone = judged(noisy, noisy[::-1], Limits(margin=0.02, alpha=0.05))
    rng = np.random.default_rng(0)
    others = [tuple(rng.normal(100, 10, (2, 6))) for _ in range(19)]
    among = changes([(noisy, noisy[::-1]), *others], Limits(margin=0.02, alpha=0.05))[0]
    assert alone.verdict is among.verdict is Verdict.UNDECIDED
    assert among.more_repeats > alone.more_repeats
    assert among.detectable_ratio > alone.detectable_ratio > 1


def test_a_latency_of_0_has_no_ratio() -> None:
    found = judged(np.zeros(5), np.ones(5))
    assert (found.ratio, found.verdict) == (None, Verdict.UNDECIDED)
    assert found.reason

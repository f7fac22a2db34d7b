"""The smallest sets of devices that represent all, against a search that tries every set."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fleetrank.analysis.statistics.choices import coverage
from fleetrank.analysis.statistics.choices.coverage import smallest_cover

NAN = math.nan
rhos = arrays(np.float64, (5, 6), elements=st.sampled_from([NAN, 0.1, 0.5, 0.8, 0.9, 1.0]))


@pytest.mark.slow
@given(rhos)
def test_the_cover_is_the_smallest_there_is(rho: np.ndarray) -> None:
    reaches = np.nan_to_num(rho, nan=-1) >= 0.8
    sizes = [
        size
        for size in range(1, 6)
        for members in itertools.combinations(range(5), size)
        if reaches[list(members)].any(axis=0).all()
    ]
    cover = smallest_cover(rho, 0.8)
    assert (cover is None) == (not sizes)
    if cover is not None:
        assert reaches[list(cover.members)].any(axis=0).all()
        assert (len(cover.members), cover.is_exact) == (min(sizes), True)


@given(rhos)
def test_the_greedy_cover_covers_within_its_bound(rho: np.ndarray) -> None:
    exact = smallest_cover(rho, 0.8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coverage, "MAX_EXACT", 0)
        greedy = smallest_cover(rho, 0.8)
    assert (greedy is None) == (exact is None)
    if greedy is not None and exact is not None:
        assert (np.nan_to_num(rho, nan=-1) >= 0.8)[list(greedy.members)].any(axis=0).all()
        assert not greedy.is_exact
        assert len(greedy.members) <= greedy.bound * len(exact.members)


def test_of_equally_small_covers_the_one_that_agrees_best() -> None:
    assert smallest_cover(np.array([[0.9, 0.9], [0.95, 0.95]]), 0.9).members == (1,)  # type: ignore[union-attr]

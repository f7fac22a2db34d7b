import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fleetrank.analysis.arrays.pareto import (
    FrontierOverlap,
    frontier,
    noisy_frontier,
    overlap,
    overlaps,
)

points = hnp.arrays(
    np.float64,
    st.tuples(st.integers(0, 25), st.integers(1, 4)),
    elements=st.integers(0, 5).map(float),
)


def slow_frontier(values: np.ndarray) -> list[bool]:
    return [
        not any((other <= one).all() and (other < one).any() for other in values) for one in values
    ]


@pytest.mark.slow
@given(points)
def test_frontier_equals_comparing_all_with_all(values: np.ndarray) -> None:
    assert frontier(values).tolist() == slow_frontier(values)


def test_exact_duplicates_are_both_kept() -> None:
    values = np.array([[1.0, 2], [1, 2], [2, 1], [2, 2]])
    assert frontier(values).tolist() == [True, True, True, False]


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        frontier(np.array([[1.0, np.nan]]))


def test_overlap_by_hand() -> None:
    source = np.array([True, True, True, False, False])
    target = np.array([True, True, False, True, False])
    assert overlap(source, target) == FrontierOverlap(
        precision=2 / 3, recall=2 / 3, f1=2 / 3, jaccard=2 / 4, chance_precision=3 / 5
    )


@pytest.mark.slow
@given(points.filter(lambda values: len(values) > 0))
def test_a_frontier_predicts_itself(values: np.ndarray) -> None:
    mask = frontier(values)
    found = overlap(mask, mask)
    assert found is not None
    assert (found.precision, found.recall, found.f1, found.jaccard) == (1, 1, 1, 1)


def test_no_points_give_none() -> None:
    nothing = np.zeros(0, dtype=bool)
    assert overlap(nothing, nothing) is None


def test_many_points_equal_the_staircase() -> None:
    # Enough points for the one that spares most of the sort to be found in a sample.
    rng = np.random.default_rng(0)
    values = np.round(rng.random((20_000, 2)) ** 2, 3)
    best, staircase = np.inf, set()
    for x, y in sorted(map(tuple, values)):
        if y < best:
            best = y
            staircase.add((x, y))
    assert frontier(values).tolist() == [tuple(one) in staircase for one in values]


@pytest.mark.slow
@given(points, st.data())
def test_noise_aware_frontier_equals_comparing_all_with_all(values: np.ndarray, data) -> None:
    high = values + data.draw(
        hnp.arrays(np.float64, values.shape, elements=st.integers(0, 2).map(float))
    )
    slow = [
        not any((above <= one).all() and (above < one).any() for above in high) for one in values
    ]
    found = noisy_frontier(values, high)
    assert found.tolist() == slow
    assert (found | ~frontier(values)).all()


@pytest.mark.slow
@given(points)
def test_without_noise_both_frontiers_are_one(values: np.ndarray) -> None:
    assert noisy_frontier(values, values).tolist() == frontier(values).tolist()


@pytest.mark.slow
@given(hnp.arrays(np.bool_, st.tuples(st.integers(1, 9), st.just(4))))
def test_overlaps_equal_overlap_of_each_pair(masks: np.ndarray) -> None:
    masks[0] = True
    source, target = np.array([0, 1, 3, 2]), np.array([1, 0, 3, 0])
    found = overlaps(masks, source, target)
    for at, (i, j) in enumerate(zip(source, target, strict=True)):
        one = overlap(masks[:, i], masks[:, j])
        assert one is not None
        for name in ("precision", "recall", "f1", "jaccard", "chance_precision"):
            assert found[name][at] == pytest.approx(getattr(one, name))
        sizes = found["n_source"][at], found["n_target"][at]
        assert sizes == (masks[:, i].sum(), masks[:, j].sum())

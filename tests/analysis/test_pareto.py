import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from analysis.pareto import FrontierOverlap, frontier, overlap

points = hnp.arrays(
    np.float64,
    st.tuples(st.integers(0, 25), st.integers(1, 4)),
    elements=st.integers(0, 5).map(float),
)


def slow_frontier(values: np.ndarray) -> list[bool]:
    return [
        not any((other <= one).all() and (other < one).any() for other in values) for one in values
    ]


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


@given(points.filter(lambda values: len(values) > 0))
def test_a_frontier_predicts_itself(values: np.ndarray) -> None:
    mask = frontier(values)
    found = overlap(mask, mask)
    assert found is not None
    assert (found.precision, found.recall, found.f1, found.jaccard) == (1, 1, 1, 1)


def test_no_points_give_none() -> None:
    nothing = np.zeros(0, dtype=bool)
    assert overlap(nothing, nothing) is None

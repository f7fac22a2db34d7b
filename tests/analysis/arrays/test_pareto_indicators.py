import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fleetrank.analysis.arrays.pareto import additive_epsilon, hypervolume


def small(rows: int, least: int = 0) -> st.SearchStrategy[np.ndarray]:
    """Integer points, so that volumes can be counted in unit cells."""
    shapes = st.tuples(st.integers(least, rows), st.integers(1, 4))
    return hnp.arrays(np.float64, shapes, elements=st.integers(0, 4).map(float))


@given(small(6))
def test_hypervolume_equals_counting_cells(points: np.ndarray) -> None:
    d = points.shape[1]
    cells = itertools.product(range(3), repeat=d)
    counted = sum(any((one <= cell).all() for one in points) for cell in cells)
    assert hypervolume(points, np.full(d, 3.0)) == pytest.approx(counted)


def test_hypervolume_by_hand() -> None:
    assert hypervolume(np.array([[1.0, 2], [2, 1]]), np.array([3.0, 3])) == 3


@pytest.mark.slow
@given(small(5, least=1), st.integers(0, 9))
def test_epsilon_is_the_least_shift_that_covers(chosen: np.ndarray, seed: int) -> None:
    wanted = np.random.default_rng(seed).integers(0, 5, (4, chosen.shape[1])).astype(float)

    def covers(shift: float) -> bool:
        return all(any((one - shift <= aim).all() for one in chosen) for aim in wanted)

    epsilon = additive_epsilon(chosen, wanted)
    assert covers(epsilon)
    assert not covers(epsilon - 1)


def test_a_set_reaches_itself() -> None:
    points = np.array([[1.0, 2], [2, 1]])
    assert additive_epsilon(points, points) == 0


def test_nothing_and_nan_are_refused() -> None:
    nothing, point = np.zeros((0, 2)), np.zeros((1, 2))
    with pytest.raises(ValueError, match="no points"):
        additive_epsilon(nothing, point)
    with pytest.raises(ValueError, match="NaN"):
        hypervolume(point * np.nan, np.ones(2))
    assert hypervolume(nothing, np.ones(2)) == 0

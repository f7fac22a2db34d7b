import warnings

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fleetrank.analysis.arrays.known_means import (
    cluster_means,
    known_mean,
    known_median,
    medians_without,
)

holey = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(1, 9)),
    elements=st.one_of(st.integers(-3, 3).map(float), st.just(np.nan)),
)


@given(holey, st.integers(0, 1))
def test_mean_and_median_of_what_is_known_equal_numpys(values: np.ndarray, axis: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        mean, median = np.nanmean(values, axis=axis), np.nanmedian(values, axis=axis)
    np.testing.assert_allclose(known_mean(values, axis), mean)
    np.testing.assert_allclose(known_median(values, axis), median)


@given(holey, st.data())
def test_cluster_means_equal_the_mean_of_each_slice(values: np.ndarray, data) -> None:
    n = values.shape[1]
    starts = np.array(sorted({0, *data.draw(st.lists(st.integers(0, n - 1)))}))
    slow = [known_mean(part, 1) for part in np.split(values, starts[1:], axis=1)]
    np.testing.assert_allclose(cluster_means(values, starts), np.column_stack(slow))


@given(holey)
def test_medians_without_a_column_equal_leaving_it_out(values: np.ndarray) -> None:
    values = np.column_stack([values, values[:, :1]])  # two columns or more
    slow = [known_median(np.delete(values, at, axis=1), 1) for at in range(values.shape[1])]
    np.testing.assert_allclose(medians_without(values), np.transpose(slow))

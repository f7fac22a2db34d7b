import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from fleetrank.analysis.statistics.prediction.predictability import left_out_errors, predictions

series = hnp.arrays(np.float64, st.tuples(st.integers(5, 12), st.just(2)),
                    elements=st.integers(1, 9).map(float))  # fmt: skip


def slow_errors(source: np.ndarray, target: np.ndarray) -> list[float]:
    """A fit of its own for every model left out."""
    errors = []
    for out in range(source.size):
        x, y = np.delete(source, out), np.delete(target, out)
        if np.ptp(x) == 0:
            errors.append(np.nan)
            continue
        slope, intercept = np.polyfit(x, y, 1)
        errors.append(abs(np.exp(slope * source[out] + intercept - target[out]) - 1))
    return errors


@pytest.mark.slow
@given(series)
def test_left_out_errors_equal_a_fit_for_every_model(latencies: np.ndarray) -> None:
    source, target = np.log(latencies).T
    found = left_out_errors(source[:, None], target[:, None])[:, 0]
    np.testing.assert_allclose(found, slow_errors(source, target), rtol=1e-6, atol=1e-9)


def test_a_power_law_is_foretold_without_error() -> None:
    source = np.log([1.0, 2, 5, 7, 11])[:, None]
    assert left_out_errors(source, 0.7 * source + 2) == pytest.approx(0, abs=1e-12)


def test_one_model_apart_from_equal_ones_has_no_line() -> None:
    found = left_out_errors(np.array([[0.0], [0], [0], [0], [1]]), np.arange(5.0)[:, None])
    assert np.isnan(found[:, 0]).tolist() == [False] * 4 + [True]


def test_all_equal_on_the_source_is_undefined() -> None:
    source = np.log(np.full((6, 1), 0.1))
    assert np.isnan(left_out_errors(source, np.arange(6.0)[:, None])).all()


def test_a_line_through_nearly_equal_models_leads_nowhere() -> None:
    source = np.array([0.0, 1e-9, 2e-9, 3e-9, 5])[:, None]
    found = left_out_errors(source, -np.arange(5.0)[:, None])
    assert np.isnan(found[4, 0])


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        left_out_errors(np.full((5, 1), np.nan), np.zeros((5, 1)))


@pytest.mark.slow
@given(hnp.arrays(np.float64, (9, 3), elements=st.one_of(st.integers(1, 9).map(float),
                                                         st.just(np.nan))))  # fmt: skip
def test_each_pair_is_judged_on_its_common_models(latencies: np.ndarray) -> None:
    logs = np.log(latencies)
    pairs = [(0, 1), (1, 0), (1, 2), (2, 1)]
    group = np.arange(9) < 6
    found = predictions(logs, pairs, [group])
    for at, (i, j) in enumerate(pairs):
        common = np.isfinite(logs[:, i]) & np.isfinite(logs[:, j])
        assert found.n_common[at] == common.sum()
        assert np.isnan(found.errors[~common, at]).all()
        if common.sum() < 5:
            assert np.isnan(found.errors[:, at]).all()
            continue
        x, y = logs[common, i], logs[common, j]
        np.testing.assert_allclose(
            found.errors[common, at], slow_errors(x, y), rtol=1e-6, atol=1e-9
        )
        np.testing.assert_allclose(
            found.shifts[common, at], np.abs(stats.rankdata(y) - stats.rankdata(x))
        )
        mine = common & group
        x, y = logs[mine, i], logs[mine, j]
        has_rho = mine.sum() >= 5 and np.ptp(x) > 0 and np.ptp(y) > 0
        expected = stats.spearmanr(x, y).statistic if has_rho else np.nan
        np.testing.assert_allclose(found.rho[0, at], expected, atol=1e-12)

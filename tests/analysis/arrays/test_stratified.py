"""Rank agreement inside groups, against ranks written out."""

import numpy as np
import pytest
from scipy import stats

from fleetrank.analysis.arrays.strata import NO_STRATUM, stratified_units, terciles


def written_out(values: np.ndarray, strata: np.ndarray) -> float:
    parts = []
    for stratum in set(strata) - {NO_STRATUM}:
        mine = values[strata == stratum]
        ranks = stats.rankdata(mine, axis=0)
        parts.append((ranks - ranks.mean(axis=0)) / (len(mine) + 1))
    one, other = np.concatenate(parts).T
    return float((one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum()))


@pytest.mark.parametrize("seed", range(5))
def test_rho_inside_strata_is_that_of_ranks_written_out_also_in_resamples(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.round(rng.normal(size=(14, 2)), 1)
    strata = rng.integers(-1, 4, 14)
    counts = np.vstack([np.ones(14, dtype=np.int64), rng.multinomial(14, [1 / 14] * 14, size=3)])
    units = np.concatenate(list(stratified_units(values, strata, counts)))
    for draw, mine in zip(units, counts, strict=True):
        drawn = np.repeat(np.arange(14), mine)
        expected = written_out(values[drawn], strata[drawn])
        assert (draw[:, 0] * draw[:, 1]).sum() == pytest.approx(expected)


def test_one_stratum_is_spearmans_rho() -> None:
    values = np.random.default_rng(0).normal(size=(9, 2))
    ((units,),) = stratified_units(values, np.zeros(9, dtype=np.int64), np.ones((1, 9), dtype=int))
    expected = stats.spearmanr(*values.T).statistic
    assert (units[:, 0] * units[:, 1]).sum() == pytest.approx(expected)


def test_models_alone_in_their_stratum_have_no_order() -> None:
    values = np.random.default_rng(0).normal(size=(4, 2))
    (units,) = stratified_units(values, np.arange(4), np.ones((1, 4), dtype=int))
    assert np.isnan(units).all()


def test_terciles_are_of_equal_size_and_unknown_values_have_none() -> None:
    values = np.array([5.0, 1.0, np.nan, 3.0, 2.0, 9.0, 4.0])
    assert terciles(values).tolist() == [2, 0, NO_STRATUM, 1, 0, 2, 1]
    assert terciles(np.full(4, np.nan)).tolist() == [NO_STRATUM] * 4

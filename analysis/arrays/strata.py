"""Ranks of models in resamples, among all models or inside groups of them, on arrays."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats, block_size, require_finite

NO_STRATUM = -1
"""The number of a model that belongs to no group."""
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """The models in the order of one column, stratum after stratum.

    Attributes:
        models: the model at each place, (n_models,).
        place: where each model's value is among the distinct ones, (n_models,).
        starts: where each distinct value begins; `None` where no two are equal.
    """

    models: Numbers
    place: Numbers
    starts: Numbers | None


def stratified_units(values: Floats, strata: Numbers, counts: Numbers) -> Iterator[Floats]:
    """Unit columns of the ranks inside each stratum, in resamples of the models.

    From (n_models, n_platforms), the stratum of each model (n_models,) and how often each model is
    drawn (draws, n_models) to blocks (some draws, n_models, n_platforms). The product of two
    columns is Spearman's rho inside the strata: ranks are taken inside a stratum, centred, and
    divided by its size + 1, so that a stratum counts by its number of models. A model alone in its
    stratum, or in `NO_STRATUM`, counts nothing; NaN where no stratum has an order.

    Source: Taylor 1987, Kendall's and Spearman's correlation coefficients in the presence of a
    blocking variable.
    """
    require_finite(values)
    # Sorting once per platform serves all draws: ranks follow from cumulative counts.
    orders = [_order(column, strata) for column in values.T]
    _, member = np.unique(strata, return_inverse=True)
    by_stratum = np.argsort(member, kind="stable")
    starts = np.flatnonzero(np.diff(member[by_stratum], prepend=-1))
    step = block_size(*values.shape)
    for start in range(0, counts.shape[0], step):
        weights = counts[start : start + step].astype(np.float64)
        sizes = np.add.reduceat(weights[:, by_stratum], starts, axis=1)
        # The mean rank of a stratum, counted from the first model of the first one.
        middle = (np.cumsum(sizes, axis=1) - (sizes - 1) / 2)[:, member]
        scale = np.sqrt(weights) / (sizes + 1)[:, member]
        yield _units(orders, weights, middle, np.where(strata == NO_STRATUM, 0.0, scale))


def _order(column: Floats, strata: Numbers) -> _Order:
    models = np.lexsort((column, strata))
    values, groups = column[models], strata[models]
    is_first = np.ones(models.size, dtype=np.bool_)
    is_first[1:] = (values[1:] != values[:-1]) | (groups[1:] != groups[:-1])
    place = np.empty(models.size, dtype=np.int64)
    place[models] = np.cumsum(is_first) - 1
    starts = None if is_first.all() else np.flatnonzero(is_first)
    return _Order(models=models, place=place, starts=starts)


def _rank(order: _Order, weights: Floats, out: Floats) -> None:
    """Writes average ranks through all strata, (draws, n_models), each counted `weights` times."""
    totals = weights.take(order.models, axis=1)
    if order.starts is not None:
        totals = np.add.reduceat(totals, order.starts, axis=1)
    ranks = np.cumsum(totals, axis=1)
    totals -= 1
    totals /= 2
    ranks -= totals
    # `take` checks places one by one, and copies the result, unless it may clip them.
    ranks.take(order.place, axis=1, out=out, mode="clip")


def _units(orders: list[_Order], weights: Floats, middle: Floats, scale: Floats) -> Floats:
    """Unit columns (draws, n_models, n_platforms) of (ranks - middle) x scale."""
    # A platform's draws, and in each draw its models, are side by side in memory.
    units = np.empty((len(orders), *weights.shape))
    for number, order in enumerate(orders):
        mine = units[number]
        _rank(order, weights, mine)
        mine -= middle
        mine *= scale
        # Ranks and their mean are exact, so that without an order this is exactly 0.
        squares = np.einsum("dn,dn->d", mine, mine)
        mine /= np.sqrt(np.where(squares > 0, squares, np.nan))[:, None]
    return np.moveaxis(units, 0, 2)


def terciles(values: Floats) -> Numbers:
    """Three groups of equal size by value, (n_models,); NaN is in `NO_STRATUM`."""
    strata = np.full(values.size, NO_STRATUM, dtype=np.int64)
    known = np.flatnonzero(np.isfinite(values))
    # Equal values are in one group: that of their lowest rank.
    below = (values[known][:, None] > values[known]).sum(axis=1)
    strata[known] = 3 * below // max(1, known.size)
    return strata

"""Agreement of rankings, on arrays: smaller is better, ranks average over ties.

A matrix holds one column per platform over the same models; missing values are removed before, so
NaN is an error. An undefined result is NaN. `few_models_note` says which claims about a rank
correlation a number of models supports.

Where models are missing, ranks use the common models of each pair. Ranking every platform once over
all its models is faster and wrong: a model missing on the other side leaves a gap in the ranks. So
each platform is sorted once, and its ranks within a pair are counted: a model's rank is the number
of common models up to it.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.sample_size import ENOUGH_MODELS

Floats = npt.NDArray[np.float64]
MIN_MODELS = 5
"""Fewer models in common give no rank correlation: with 4, one swap moves rho by 0.2 to 0.8."""
_CACHED_VALUES = 32_000
"""Values to rank at a time: 256 KB stay in the processor's cache; all at once is slower by half."""


def average_ranks(values: Floats) -> Floats:
    """Ranks 1 to n over the models of (..., n_models, n_platforms); ties share their mean."""
    return _placed(values, np.arange(1.0, values.shape[-2] + 1), lambda ranks: ranks)


def rank_units(values: Floats) -> Floats:
    """`unit_columns` of `average_ranks`, both (..., n_models, n_platforms), in half the time."""
    untied = unit_columns(np.arange(1.0, values.shape[-2] + 1)[:, None])[:, 0]
    return _placed(values, untied, lambda ranks: unit_columns(ranks.T).T)


def _placed(values: Floats, untied: Floats, of_tied: Callable[[Floats], Floats]) -> Floats:
    """For each value what `untied` (n_models,) has for its place in the order of its column.

    `of_tied` gives it for columns with ties from their average ranks, both (n_columns, n_models).
    """
    require_finite(values)
    if values.size == 0:
        return np.empty(values.shape)
    by_column = np.swapaxes(values, -1, -2)
    rows = by_column.reshape(-1, values.shape[-2])
    placed, has_ties = np.empty(rows.shape), np.empty(rows.shape[0], dtype=np.bool_)
    step = max(1, _CACHED_VALUES // rows.shape[1])
    for start in range(0, rows.shape[0], step):
        some = slice(start, start + step)
        order = np.argsort(rows[some], axis=-1)
        np.put_along_axis(placed[some], order, untied[None], axis=-1)
        in_order = np.take_along_axis(rows[some], order, axis=-1)
        has_ties[some] = (in_order[:, 1:] == in_order[:, :-1]).any(axis=1)
    if has_ties.any():
        placed[has_ties] = of_tied(_tied_ranks(rows[has_ties]))
    return np.swapaxes(placed.reshape(by_column.shape), -1, -2)


def _tied_ranks(rows: Floats) -> Floats:
    """Ranks in each row of (n_columns, n_models); ties share the mean of their places.

    Importing SciPy's ranks takes longer than a table of a small workspace.
    """
    order, place = np.argsort(rows, axis=1), np.arange(1.0, rows.shape[1] + 1)
    in_order = np.take_along_axis(rows, order, axis=1)
    is_first = np.ones(rows.shape, dtype=np.bool_)
    is_first[:, 1:] = in_order[:, 1:] != in_order[:, :-1]
    first = np.maximum.accumulate(np.where(is_first, place, 0.0), axis=1)
    is_last = np.roll(is_first, -1, axis=1)
    last = np.minimum.accumulate(np.where(is_last, place, np.inf)[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty(rows.shape)
    np.put_along_axis(ranks, order, (first + last) / 2, axis=1)
    return ranks


def spearman_matrix(values: Floats) -> Floats:
    """Spearman's rho between all columns of (n_models, n_platforms).

    NaN where a column is constant; (n_platforms, n_platforms).
    """
    return products(rank_units(values))


def kendall_matrix(values: Floats) -> Floats:
    """Kendall's tau-b between all columns of (n_models, n_platforms).

    NaN where a column is constant. Source: Kendall 1945; tau-b is the uncentred correlation of
    the signs of all differences between two models.
    """
    require_finite(values)
    n_models, size = values.shape
    sums, step = np.zeros((size, size)), block_size(n_models, size)
    for start in range(0, n_models, step):
        # Every pair of models twice, and each model with itself, whose sign is 0. Such counts
        # stay exact in float32 up to 2^24, and a block has fewer.
        signs = np.sign(values[start : start + step, None] - values).reshape(-1, size)
        singles = signs.astype(np.float32)
        sums += singles.T @ singles
    untied = np.diag(sums)
    with np.errstate(invalid="ignore", divide="ignore"):
        tau = sums / np.sqrt(np.outer(untied, untied))
    clipped: Floats = np.clip(tau, -1.0, 1.0)
    return clipped


def unit_columns(columns: Floats) -> Floats:
    """Columns of (..., n, p), centred and of length 1; NaN if constant.

    The product of two is their Pearson correlation, so that a mean over many pairs needs no
    matrix of all pairs.
    """
    centred = columns - columns.mean(axis=-2, keepdims=True)
    norm = np.sqrt((centred**2).sum(axis=-2))
    # Rounding of the mean gives a constant column a small deviation instead of 0.
    norm[np.ptp(columns, axis=-2) == 0] = np.nan
    units: Floats = centred / norm[..., None, :]
    return units


def partial_units(units: Floats, given: Floats) -> Floats:
    """Unit columns (..., n, p) without what the unit column `given` (..., n, 1) explains.

    Their products are partial correlations given that column; NaN where it explains all or is
    itself undefined. Source: the recursion of Yule 1907, as regression of both sides (Frisch and
    Waugh 1933).
    """
    residual = units - given * (given * units).sum(axis=-2, keepdims=True)
    squares = (residual**2).sum(axis=-2, keepdims=True)
    # Rounding leaves 1e-31; unequal ranks of a million models at least 1e-17.
    norm = np.where(squares > 1e-24, np.sqrt(squares), np.nan)
    partial: Floats = residual / norm
    return partial


def products(units: Floats) -> Floats:
    """Correlations (..., p, p) of unit columns (..., n, p)."""
    return without_rounding(np.clip(np.swapaxes(units, -1, -2) @ units, -1.0, 1.0))


def without_rounding(rho: Floats) -> Floats:
    """Correlations, with 0 for what rounding leaves of it, such as -5.6e-17."""
    # The least rho of unequal ranks is 6 / n^3: above this for 80,000 models.
    exact: Floats = np.where(np.abs(rho) < 1e-14, 0.0, rho)
    return exact


def block_size(n_rows: int, n_columns: int) -> int:
    """How many draws of such a matrix to hold at a time: 4 MB."""
    return max(1, 500_000 // max(1, n_rows * n_columns))


def require_finite(values: Floats) -> None:
    """Checks that no value is NaN or infinite.

    Raises:
        ValueError: a value is NaN or infinite; remove missing models first.
    """
    if not np.isfinite(values).all():
        raise ValueError("values hold NaN or infinity: remove missing models first")


def few_models_warning(n_models: int) -> tuple[str, ...]:
    """One sentence if `n_models` is too small for a claim about rho; empty from 100 models on."""
    if n_models >= ENOUGH_MODELS:
        return ()
    return (
        f"FEW MODELS: a figure uses at most {n_models}; about {ENOUGH_MODELS} are needed to decide "
        "whether rho is above 0.9.",
    )


_BLOCK_VALUES = 4_000_000
"""Ranks in memory for one side of a block of pairs: 8 MB as 16-bit numbers."""
_MAX_SHORT = 16_000
"""Doubled ranks of more models do not fit into 16 bits."""
Counts = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int16] | npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """One platform in the order of its values.

    Attributes:
        order: all models; those present first, smallest value first.
        place: where each model is in this order.
        n_present: how many of them are present.
        before, last: for each present one, how many are smaller, and the position of the last
            equal one; `None` where no two are equal.
    """

    order: Counts
    place: Counts
    n_present: int
    before: Counts | None
    last: Counts | None


def spearman_common(values: Floats) -> tuple[Floats, Counts]:
    """Rho between all columns of (n_models, n_platforms), NaN missing, and their common models.

    Both (n_platforms, n_platforms). NaN where a column is constant over the common models or
    fewer than two are common. Sums are of whole numbers and therefore exact.

    Raises:
        ValueError: a value is infinite.
    """
    if np.isinf(values).any():
        raise ValueError("values contain infinity: remove such models first")
    present = ~np.isnan(values)
    n_models, size = values.shape
    columns = [_column(values[:, number], present[:, number]) for number in range(size)]
    is_short = n_models <= _MAX_SHORT
    marks: Shorts = present.astype(np.int16) if is_short else present.astype(np.int32)
    common = present.T.astype(np.float64) @ present.astype(np.float64)
    mean = common + 1.0
    products, squares = np.empty((size, size)), np.empty((size, size))
    for here, there in _blocks(n_models, size):
        mine, squares[here, there] = _ranks(columns[here], marks[:, there], common[here, there])
        if here == there:
            theirs = mine
        else:
            theirs, squares[there, here] = _ranks(
                columns[there], marks[:, here], common[there, here]
            )
        # A model that is missing on one side has no rank there, so its product is 0.
        found = np.einsum("ixy,iyx->xy", mine, theirs, dtype=np.float64)
        products[here, there], products[there, here] = found, found.T
    covariance = products - common * mean**2
    spread = squares - common * mean**2
    both = spread * spread.T
    is_defined = both > 0
    rho = np.where(is_defined, covariance / np.sqrt(np.where(is_defined, both, 1.0)), np.nan)
    return np.clip(rho, -1.0, 1.0), common.astype(np.int64)


def _blocks(n_models: int, size: int) -> Iterator[tuple[slice, slice]]:
    step = max(8, int((_BLOCK_VALUES / max(1, n_models)) ** 0.5))
    for first in range(0, size, step):
        for second in range(first, size, step):
            yield slice(first, min(size, first + step)), slice(second, min(size, second + step))


def _column(values: Floats, present: npt.NDArray[np.bool_]) -> _Column:
    # NaN is sorted last.
    order = np.argsort(values, kind="stable")
    place, n_present = np.argsort(order), int(present.sum())
    in_order = values[order[:n_present]]
    is_first = np.append(True, in_order[1:] != in_order[:-1])[:n_present]
    if is_first.all():
        return _Column(order=order, place=place, n_present=n_present, before=None, last=None)
    starts = np.flatnonzero(is_first)
    group = np.cumsum(is_first) - 1
    ends = np.append(starts[1:], n_present) - 1
    return _Column(
        order=order, place=place, n_present=n_present, before=starts[group], last=ends[group]
    )


def _ranks(columns: list[_Column], marks: Shorts, common: Floats) -> tuple[Shorts, Floats]:
    """Doubled ranks of each column within each pair, and the sums of their squares.

    `marks` (n_models, n_others) is 1 where the other side has the model, and `common` (n_columns,
    n_others) counts the models of the pair. Returns (n_models, n_columns, n_others), 0 where the
    column lacks the model and without meaning where only the other side does, and (n_columns,
    n_others).
    """
    orders = np.stack([column.order for column in columns], axis=1)
    counted = cast("Shorts", np.take(2 * marks, orders, axis=0))
    # All columns together, model after model: several times faster than NumPy's cumulative sum,
    # which goes along one column of the array after the other.
    for before, here in itertools.pairwise(counted):
        np.add(here, before, out=here)
    squares = 2 * common * (common + 1) * (2 * common + 1) / 3
    for number, column in enumerate(columns):
        mine = counted[: column.n_present, number]
        if column.before is not None and column.last is not None:
            # Halves, because the sum of two doubled counts may not fit into 16 bits.
            half = np.concatenate([np.zeros_like(mine[:1]), mine // 2])
            mine[:] = half[column.before] + half[column.last + 1] + 1
            theirs = marks[column.order[: column.n_present]]
            squares[number] = np.einsum("iy,iy,iy->y", mine, mine, theirs, dtype=np.float64)
        counted[column.n_present :, number] = 0
    # Taking whole rows by their number is several times faster than assigning them.
    places = np.stack([column.place for column in columns], axis=1) * len(columns)
    places += np.arange(len(columns))
    ranks = np.take(counted.reshape(-1, marks.shape[1]), places, axis=0)
    return cast("Shorts", ranks), squares

"""Spearman's rho where models are missing: ranks use the common models of each pair.

Ranking every platform once over all its models is faster and wrong: a model missing on the other
side leaves a gap in the ranks. Here each platform is sorted once, and its ranks within a pair are
counted: a model's rank is the number of common models up to it.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats

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

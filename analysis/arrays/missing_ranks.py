"""Spearman's rho where models are missing: ranks use the common models of each pair.

Ranking every platform once over all its models is faster and wrong: a model missing on the other
side leaves a gap in the ranks. Here each platform is sorted once, and its ranks within a pair are
counted: a model's rank is the number of common models up to it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats

_BLOCK_VALUES = 16_000_000
"""Ranks in memory for one side of a block of pairs: 32 MB as 16-bit numbers."""
_MAX_SHORT = 16_000
"""Doubled ranks of more models do not fit into 16 bits."""

Counts = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int16] | npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """One platform in the order of its values.

    Attributes:
        order: its present models, smallest value first, (n_present,).
        before, last: for each of them, how many are smaller, and the position of the last equal
            one; `None` where no two are equal.
    """

    order: Counts
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
        mine, squares[here, there] = _ranks(columns[here], marks[:, there])
        if here == there:
            theirs = mine
        else:
            theirs, squares[there, here] = _ranks(columns[there], marks[:, here])
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
    rows = np.flatnonzero(present)
    order = rows[np.argsort(values[rows], kind="stable")]
    in_order = values[order]
    is_first = np.append(True, in_order[1:] != in_order[:-1])[: order.size]
    if is_first.all():
        return _Column(order=order, before=None, last=None)
    starts = np.flatnonzero(is_first)
    group = np.cumsum(is_first) - 1
    ends = np.append(starts[1:], order.size) - 1
    return _Column(order=order, before=starts[group], last=ends[group])


def _ranks(columns: list[_Column], marks: Shorts) -> tuple[Shorts, Floats]:
    """Doubled ranks of each column within each pair, and the sums of their squares.

    `marks` (n_models, n_others) is 1 where the other side has the model. Returns (n_models,
    n_columns, n_others), whose value where the other side lacks the model means nothing, and
    (n_columns, n_others).
    """
    n_models, n_others = marks.shape
    ranks: Shorts = np.zeros((n_models, len(columns), n_others), dtype=marks.dtype)
    squares = np.empty((len(columns), n_others))
    for number, column in enumerate(columns):
        theirs = marks[column.order]
        upto = np.cumsum(theirs, axis=0, dtype=marks.dtype)
        if column.before is None or column.last is None:
            doubled = 2 * upto
            count = upto[-1].astype(np.float64) if upto.size else np.zeros(n_others)
            squares[number] = 2 * count * (count + 1) * (2 * count + 1) / 3
        else:
            through = np.concatenate([np.zeros_like(upto[:1]), upto])
            doubled = through[column.before] + through[column.last + 1] + 1
            squares[number] = np.einsum("iy,iy,iy->y", doubled, doubled, theirs, dtype=np.float64)
        ranks[column.order, number] = doubled
    return ranks, squares

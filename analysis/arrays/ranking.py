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
from dataclasses import asdict, dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

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


# Which claims about a rank correlation a number of models supports.

ENOUGH_MODELS = 100
"""With this many models an estimate near 0.92 is within 0.87 to 0.95."""

_RANGES = {
    10: "for a true rho of 0.97 the estimate is from 0.81 to 1.00, so 0.85 and 0.97 cannot be "
    "separated",
    20: "for a true rho of 0.97 the estimate is from 0.88 to 0.99, for 0.92 from 0.77 to 0.98, "
    "for 0.79 from 0.48 to 0.93",
    50: "for a true rho of 0.97 the estimate is from 0.92 to 0.99, for 0.92 from 0.84 to 0.96, "
    "for 0.79 from 0.65 to 0.88",
}
"""95 % ranges over random subsets of that many models.

Source: subsets of public latency tables with 1,000 models and more (OneProxy, HELP, timm).
"""


def few_models_warning(n_models: int) -> tuple[str, ...]:
    """One sentence if `n_models` is too small for a claim about rho; empty from 100 models on."""
    if n_models >= ENOUGH_MODELS:
        return ()
    return (
        f"FEW MODELS: a figure uses at most {n_models}; about {ENOUGH_MODELS} are needed to decide "
        "whether rho is above 0.9.",
    )


def few_models_note(n_models: int) -> tuple[str, ...]:
    """The same with the ranges of estimates, for the explanation of a table."""
    if n_models >= ENOUGH_MODELS:
        return ()
    known = max((n for n in _RANGES if n <= n_models), default=min(_RANGES))
    return (
        f"FEW MODELS: a figure uses at most {n_models}. With {known} models, {_RANGES[known]}. "
        f"About {ENOUGH_MODELS} models are needed to decide whether rho is above 0.9.",
    )


# The compound measure FRM, and its rank correlation without any latency signal (the null).


def ratios(values: Floats, reference: int | None = None) -> Floats:
    """Each model's value over the geometric mean over models (first axis), same shape.

    With `reference`, over that model's value instead.

    Raises:
        ValueError: a value is not above 0; remove that model.
    """
    logs = _logs(values)
    base = logs.mean(axis=0) if reference is None else logs[reference]
    over_base: Floats = np.exp(logs - base)
    return over_base


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Exponents of FRM's ratios; 0 leaves a component out.

    Raises:
        ValueError: a weight is below 0, or latency's is 0: nothing would be measured.
    """

    flops: float = 1.0
    latency: float = 1.0
    memory: float = 1.0

    def __post_init__(self) -> None:
        if min(self.flops, self.memory) < 0 or self.latency <= 0:
            raise ValueError("weights must be 0 or more, and latency's weight above 0")

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the components with a weight above 0."""
        return tuple(name for name, weight in asdict(self).items() if weight > 0)


EQUAL_WEIGHTS = Weights()


def frm(
    flops: Floats,
    latency: Floats,
    memory: Floats,
    reference: int | None = None,
    weights: Weights = EQUAL_WEIGHTS,
) -> Floats:
    """(ratio_flops x ratio_latency x ratio_memory)^(1/3) of (n_models, n_platforms) each.

    `flops` is (n_models,). With `weights`, the weighted geometric mean of the ratios; a component
    of weight 0 is ignored. On one platform its ranks are those of the plain product.

    Raises:
        ValueError: a component is not above 0; remove that model.
    """
    parts = {"flops": flops[:, None], "latency": latency, "memory": memory}
    exponents = asdict(weights)
    logs = np.zeros_like(latency)
    for name in weights.used:
        logs += exponents[name] * np.log(ratios(parts[name], reference))
    root: Floats = np.exp(logs / sum(exponents.values()))
    return root


def null_units(
    rest: Floats, latency: Floats, draws: int, rng: np.random.Generator
) -> Iterator[Floats]:
    """Unit columns of the ranks of rest x latency when latency carries no information.

    Latencies are permuted over the models, independently on every platform, while `rest` (FLOPs
    x memory for FRM, ones for latency alone) stays. From (n_models, n_platforms) twice to blocks
    (some draws, n_models, n_platforms), `draws` in all; see `ranking.unit_columns`.
    """
    yield from _permuted_units(_logs(rest), _logs(latency), draws, rng)


def residual_null_units(
    rest: Floats, latency: Floats, flops: Floats, draws: int, rng: np.random.Generator
) -> Iterator[Floats]:
    """Like `null_units`, when latency carries only what FLOPs explain; `flops` is (n_models,).

    On every platform log latency = a + b log FLOPs + c (log FLOPs)^2 + residual, by least squares
    over these models. The residuals are permuted over the models, independently on every platform,
    and rho is measured on rest x rebuilt latency. `null_units` also cuts the link of latency to
    FLOPs, so it is exceeded although only FLOPs transfer. The square follows a constant cost of
    each inference: a line leaves the same bend on both platforms, which looks like agreement.

    Raises:
        ValueError: a value is not above 0; remove that model.

    Source: Freedman and Lane 1983; residuals x sqrt(n / (n - parameters)) as Davison and Hinkley
    1997, 6.3: those of a fit are smaller than the errors.
    """
    log_latency, log_flops = _logs(latency), _logs(flops)
    fit, residual = _fit_on(log_flops, log_latency)
    yield from _permuted_units(_logs(rest) + fit, residual, draws, rng)


def _fit_on(given: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Least squares of each column on (n_models,) and its square: the fit, and scaled residuals."""
    n_models = given.size
    scaled = (given - given.mean()) / (np.ptp(given) or 1.0)
    columns = np.stack([scaled, scaled**2 - np.mean(scaled**2)])
    # Two sizes of FLOPs have a line and no bend: the second column is then no parameter.
    coefficients, _, rank, _ = np.linalg.lstsq(columns.T, values, rcond=1e-6)
    # Not as a product of matrices, whose rounding orders models of equal FLOPs.
    fit: Floats = values.mean(axis=0) + (columns[..., None] * coefficients[:, None]).sum(axis=0)
    residual = values - fit
    # Rounding must not give an order to models that FLOPs explain completely.
    residual[np.abs(residual) < 1e-12 * np.maximum(np.abs(values), 1.0)] = 0.0
    return fit, residual * np.sqrt(n_models / max(1, n_models - 1 - rank))


def _permuted_units(
    log_rest: Floats, log_latency: Floats, draws: int, rng: np.random.Generator
) -> Iterator[Floats]:
    """Unit columns of the ranks of the sum with the second part permuted over the models."""
    # If only latency ranks the models, permuted latencies have permuted ranks: no sorting.
    is_alone = bool((log_rest == log_rest[:1]).all())
    moved = rank_units(log_latency) if is_alone else log_latency
    step = block_size(*log_rest.shape)
    for start in range(0, draws, step):
        # A column's models side by side in memory: permuting and sorting take half the time.
        by_column = np.empty((min(step, draws - start), *moved.T.shape))
        by_column[:] = moved.T
        rng.permuted(by_column, axis=2, out=by_column)
        if not is_alone:
            by_column += log_rest.T
        permuted = np.swapaxes(by_column, 1, 2)
        yield permuted if is_alone else rank_units(permuted)


def headroom(rho: float, null: float) -> float | None:
    """(rho - null) / (1 - null): the share of what the null leaves open; `None` at a null of 1."""
    return None if null >= 1 else (rho - null) / (1 - null)


def null_p(rho: Floats | float, null: Floats) -> Floats:
    """One-sided p of `rho` (...) against null draws (draws, ...): (b + 1) / (draws + 1)."""
    reached = (null >= rho - 1e-9).sum(axis=0)
    p: Floats = (reached + 1) / (null.shape[0] + 1)
    return np.where(np.isnan(rho), np.nan, p)


def mid_p(rho: Floats | float, null: Floats) -> Floats:
    """Like `null_p`, with half the weight for draws equal to `rho`, and for `rho` itself.

    Few models have few possible rhos, so many draws are equal to the measured one, at rho 1 above
    all. Counting them fully rejects a true null in 1 % of cases instead of 5 %.
    Source: Lancaster 1961.
    """
    above = (null > rho + 1e-9).sum(axis=0)
    reached = (null >= rho - 1e-9).sum(axis=0)
    p: Floats = (above + reached + 1) / (2 * (null.shape[0] + 1))
    return np.where(np.isnan(rho), np.nan, p)


def _logs(values: Floats) -> Floats:
    require_finite(values)
    if (values <= 0).any():
        raise ValueError("a ratio needs values above 0: remove models without them")
    logs: Floats = np.log(values)
    return logs


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

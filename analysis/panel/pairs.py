"""How far rankings on two platforms agree: figures of many pairs at once."""

import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    percentile_interval,
    permutation_p,
    resample_counts,
    resampled_units,
)
from fleetrank.analysis.arrays.frm import headroom, null_p, null_units
from fleetrank.analysis.arrays.ranking import (
    MIN_MODELS,
    Floats,
    average_ranks,
    block_size,
    kendall_matrix,
    partial_units,
    products,
    unit_columns,
)
from fleetrank.analysis.panel.panel import Measure
from fleetrank.foundation.wording import count_of

Pair = tuple[int, int]
"""Column numbers of source and target."""

_FEW_PLATFORMS = 50
"""Up to this many platforms a pair is cheap, so many draws are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Number of random draws for the figures."""

    bootstrap: int
    permutation: int
    null: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFigures:
    """Rank agreement over the models two platforms have in common; `None` has its `reason`.

    Attributes:
        low, high: 95 % percentile bootstrap over models; `None` below 9 of them.
        tau_b: `None` for a partial correlation.
        p_value: latency alone: two-sided permutation test; otherwise one-sided against the null.
        null_mean, null_p95: rho when latencies are permuted on every platform; `None`, as is the
            p-value, for a measure without latency.
        headroom: (rho - null_mean) / (1 - null_mean).
    """

    n_models: int
    rho: float | None = None
    tau_b: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    null_mean: float | None = None
    null_p95: float | None = None
    headroom: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Pairs that share the same common models.

    Attributes:
        where: positions of its pairs in the caller's sequence.
        models: row numbers of the common models.
        columns: platforms that occur; `source` and `target` count within them.
    """

    where: npt.NDArray[np.int64]
    models: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    source: npt.NDArray[np.int64]
    target: npt.NDArray[np.int64]


def draws_for(pairs: Sequence[Pair]) -> Draws:
    """Many draws for few platforms; at least 200 for a null."""
    if len({column for pair in pairs for column in pair}) <= _FEW_PLATFORMS:
        return Draws(bootstrap=1000, permutation=9999, null=1000)
    return Draws(bootstrap=400, permutation=999, null=200)


def blocks(present: npt.NDArray[np.bool_], pairs: Sequence[Pair]) -> Iterator[Block]:
    """Groups pairs by the models present (n_models, n_platforms) on both sides.

    Ranks are taken inside the pair; where nothing is missing, one block holds all pairs and the
    platforms are ranked once.
    """
    if not pairs:
        return
    sides = np.array(pairs, dtype=np.int64)
    patterns, member = _common_models(present, sides)
    for number, mask in enumerate(patterns):
        where = np.flatnonzero(member == number)
        columns, inside = np.unique(sides[where], return_inverse=True)
        inside = inside.reshape(-1, 2)
        yield Block(
            where=where,
            models=np.flatnonzero(mask),
            columns=columns,
            source=inside[:, 0],
            target=inside[:, 1],
        )


def _common_models(
    present: npt.NDArray[np.bool_], sides: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """The distinct sets of common models (n_sets, n_models) and which of them each pair has.

    Platforms are grouped first: a million pairs come from few kinds of platform.
    """
    kinds, kind_of = np.unique(present.T, axis=0, return_inverse=True)
    both = np.sort(kind_of.reshape(-1)[sides], axis=1)
    codes, code_of = np.unique(both[:, 0] * len(kinds) + both[:, 1], return_inverse=True)
    common = kinds[codes // len(kinds)] & kinds[codes % len(kinds)]
    patterns, pattern_of = np.unique(common, axis=0, return_inverse=True)
    return patterns, pattern_of.reshape(-1)[code_of.reshape(-1)]


def pair_figures(measure: Measure, pairs: Sequence[Pair], seed: int) -> list[PairFigures]:
    """Figures of every pair, in the order given."""
    values = measure.values
    draws = draws_for(pairs)
    figures: list[PairFigures] = [PairFigures(n_models=0)] * len(pairs)
    for block in blocks(np.isfinite(values), pairs):
        found = _block_figures(measure, block, draws, seed)
        for position, figure in zip(block.where, found, strict=True):
            figures[position] = figure
    return figures


def _block_figures(measure: Measure, block: Block, draws: Draws, seed: int) -> list[PairFigures]:
    n_models = block.models.size
    if n_models < MIN_MODELS:
        reason = f"{count_of(n_models, 'model')} in common, at least {MIN_MODELS} needed"
        return [PairFigures(n_models=n_models, reason=reason)] * block.where.size
    rho = block_rhos(measure, block)
    low, high = _intervals(measure, block, draws, seed)
    null = _null(measure, block, rho, draws, seed)
    rows = np.column_stack([rho, _taus(measure, block), low, high, *null]).tolist()
    undefined = "all models are equal on one side"
    if measure.given is not None:
        undefined += ", or the given ranking is constant or explains all"
    return [_figures(n_models, row, undefined) for row in rows]


def _taus(measure: Measure, block: Block) -> Floats:
    if measure.given is not None:
        return np.full(block.where.size, np.nan)
    return kendall_matrix(_block_values(measure, block))[block.source, block.target]


def _null(
    measure: Measure, block: Block, rho: Floats, draws: Draws, seed: int
) -> tuple[Floats, Floats, Floats]:
    """P-value, mean and 95th percentile of the null for each pair of the block."""
    if not measure.has_latency:
        nothing = np.full(block.where.size, np.nan)
        return nothing, nothing, nothing
    null = _picked(null_draws(measure, block, draws, seed), block)
    if measure.name == "latency":
        rng = block_rng(measure, block, seed, "permutation")
        values = _block_values(measure, block)
        p = permutation_p(values, draws.permutation, rng)[block.source, block.target]
    else:
        p = null_p(rho, null)
    p95: Floats = np.quantile(null, 0.95, axis=0)
    return p, null.mean(axis=0), p95


def _figures(n_models: int, row: Sequence[float], undefined: str) -> PairFigures:
    rho, tau, low, high, p, mean, p95 = (None if math.isnan(value) else value for value in row)
    if rho is None:
        return PairFigures(n_models=n_models, reason=undefined)
    reason = None
    if low is None:
        few = count_of(n_models, "model")
        reason = f"no interval: {few}, at least {MIN_MODELS_FOR_INTERVAL} needed"
    return PairFigures(
        n_models=n_models,
        rho=rho,
        tau_b=tau,
        low=low,
        high=high,
        p_value=p,
        null_mean=mean,
        null_p95=p95,
        headroom=None if mean is None else headroom(rho, mean),
        reason=reason,
    )


def block_rhos(measure: Measure, block: Block) -> Floats:
    """Rho, or partial rho, of the block's pairs over their common models; NaN where undefined."""
    units = unit_columns(average_ranks(_block_values(measure, block)))
    if measure.given is not None:
        units = partial_units(units, _given_unit(measure.given, block))
    rhos: Floats = products(units)[block.source, block.target]
    return rhos


def block_resamples(
    measure: Measure, block: Block, counts: npt.NDArray[np.int64]
) -> Iterator[Floats]:
    """Unit columns of the block's platforms in resamples of its models, (draws, n_models)."""
    values = _block_values(measure, block)
    if measure.given is None:
        yield from resampled_units(values, counts)
        return
    with_given = np.column_stack([values, measure.given[block.models]])
    for units in resampled_units(with_given, counts):
        yield partial_units(units[..., :-1], units[..., -1:])


def _block_values(measure: Measure, block: Block) -> Floats:
    values: Floats = measure.values[np.ix_(block.models, block.columns)]
    return values


def _given_unit(given: Floats, block: Block) -> Floats:
    return unit_columns(average_ranks(given[block.models, None]))


def null_draws(measure: Measure, block: Block, draws: Draws, seed: int) -> Iterator[Floats]:
    """Unit columns of the block's platforms with permuted latencies; see `frm.null_units`."""
    grid = np.ix_(block.models, block.columns)
    rng = block_rng(measure, block, seed, "null")
    units = null_units(measure.rest[grid], measure.latency[grid], draws.null, rng)
    if measure.given is None:
        return units
    given = _given_unit(measure.given, block)
    # If FLOPs explain a permuted ranking completely (1 in 60 with five models), its rho counts as
    # 0; for a measured ranking it is undefined.
    return (np.nan_to_num(partial_units(some, given)) for some in units)


def _picked(units: Iterable[Floats], block: Block) -> Floats:
    """Rho of the block's pairs in every draw, (draws, n_pairs)."""
    step = block_size(block.models.size, block.where.size)
    rhos = [
        np.einsum("dmp,dmp->dp", chunk[:, :, block.source], chunk[:, :, block.target])
        for some in units
        for chunk in (some[start : start + step] for start in range(0, some.shape[0], step))
    ]
    clipped: Floats = np.clip(np.concatenate(rhos), -1.0, 1.0)
    return clipped


def block_rng(measure: Measure, block: Block, seed: int, purpose: str) -> np.random.Generator:
    """A separate random stream per purpose: a figure does not depend on earlier draws."""
    models = zlib.crc32(block.models.tobytes())
    return np.random.default_rng([seed, models, zlib.crc32(f"{measure.name}/{purpose}".encode())])


def _intervals(measure: Measure, block: Block, draws: Draws, seed: int) -> tuple[Floats, Floats]:
    n_models = block.models.size
    if n_models < MIN_MODELS_FOR_INTERVAL:
        nothing = np.full(block.where.size, np.nan)
        return nothing, nothing
    rng = block_rng(measure, block, seed, "bootstrap")
    counts = resample_counts(n_models, draws.bootstrap, rng)
    return percentile_interval(_picked(block_resamples(measure, block, counts), block))

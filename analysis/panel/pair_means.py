"""Rank agreement averaged over many pairs, between two tiers of devices for example."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    percentile_interval,
    resample_counts,
)
from fleetrank.analysis.arrays.frm import headroom, mid_p, null_p
from fleetrank.analysis.arrays.known_means import cluster_weights
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats
from fleetrank.analysis.panel.pairs import (
    Block,
    Draws,
    Pair,
    block_resamples,
    block_rhos,
    block_rng,
    blocks,
    draws_for,
    null_draws,
    residual_draws,
    why_no_residual_null,
)
from fleetrank.analysis.panel.panel import Measure
from fleetrank.foundation.wording import count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanFigures:
    """A mean over pairs of platforms; `None` has its `reason`.

    Attributes:
        n_models: fewest models that any pair has in common.
        n_pairs, n_clusters: pairs of platforms, and of device models, that have a rho.
        low, high: 95 % percentile bootstrap; each resample of models serves all pairs.
        std_over_pairs: spread of the clusters' means; no uncertainty of `rho`.
        p_value: one-sided, against the null; it and `null_p95` are upper bounds where pairs have
            different common models. They, `null_mean` and `headroom` are `None` for a measure
            without latency.
        residual_null_mean, residual_p: against the null in which only what FLOPs explain of
            latency transfers, mid-p; `None`, with the `reason`, if a model has no FLOPs.
    """

    n_models: int
    n_pairs: int
    n_clusters: int = 0
    rho: float | None = None
    low: float | None = None
    high: float | None = None
    std_over_pairs: float | None = None
    p_value: float | None = None
    null_mean: float | None = None
    null_p95: float | None = None
    headroom: float | None = None
    residual_null_mean: float | None = None
    residual_p: float | None = None
    reason: str | None = None


def mean_figures(
    measure: Measure, pairs: Sequence[Pair], clusters: npt.ArrayLike, seed: int
) -> MeanFigures:
    """Averages rho inside each cluster first, then over clusters.

    `clusters` has the name or number of each pair's two device models, so that a device model with
    many units or settings counts once.
    """
    parts = list(blocks(np.isfinite(measure.values), pairs))
    rho = _rhos(measure, parts, len(pairs))
    fewest = min((part.models.size for part in parts), default=0)
    if np.isnan(rho).all():
        return MeanFigures(n_models=fewest, n_pairs=0, reason="no pair of platforms has a rho")
    weights, spread, n_clusters = cluster_weights(rho, clusters)
    mean = float(np.nansum(weights * rho))
    used = [part for part in parts if weights[part.where].any()]
    fewest = min(part.models.size for part in used)
    draws = draws_for(pairs)
    low, high = _interval(measure, used, weights, draws, seed)
    figures = MeanFigures(
        n_models=fewest,
        n_pairs=int(np.isfinite(rho).sum()),
        n_clusters=n_clusters,
        rho=mean,
        low=low,
        high=high,
        std_over_pairs=spread,
        reason=None if low is not None else _why_no_interval(fewest),
    )
    if not measure.has_latency:
        return figures
    null = _null((null_draws(measure, part, draws, seed) for part in used), used, weights)
    null_mean = float(np.mean(null))
    figures = replace(
        figures,
        p_value=float(null_p(mean, null)),
        null_mean=null_mean,
        null_p95=float(np.quantile(null, 0.95)),
        headroom=headroom(mean, null_mean),
    )
    return _with_residual_null(figures, measure, used, weights, seed, draws)


def _with_residual_null(
    figures: MeanFigures,
    measure: Measure,
    used: Sequence[Block],
    weights: Floats,
    seed: int,
    draws: Draws,
) -> MeanFigures:
    models = np.unique(np.concatenate([part.models for part in used]))
    lacking = why_no_residual_null(measure, models)
    if lacking is not None:
        reason = lacking if figures.reason is None else f"{figures.reason}; {lacking}"
        return replace(figures, reason=reason)
    units = [residual_draws(measure, part, draws, seed) for part in used]
    known = [some for some in units if some is not None]
    if figures.rho is None or len(known) < len(units):
        return figures
    null = _null(known, used, weights)
    return replace(
        figures,
        residual_null_mean=float(np.mean(null)),
        residual_p=float(mid_p(figures.rho, null)),
    )


def _rhos(measure: Measure, parts: Iterable[Block], n_pairs: int) -> Floats:
    rho = np.full(n_pairs, np.nan)
    for part in parts:
        if part.models.size >= MIN_MODELS:
            rho[part.where] = block_rhos(measure, part)
    return rho


def _interval(
    measure: Measure, parts: Sequence[Block], weights: Floats, draws: Draws, seed: int
) -> tuple[float | None, float | None]:
    if min(part.models.size for part in parts) < MIN_MODELS_FOR_INTERVAL:
        return None, None
    union = np.unique(np.concatenate([part.models for part in parts]))
    rng = block_rng(measure, parts[0], seed, "joint bootstrap")
    counts = resample_counts(union.size, draws.bootstrap, rng)
    total = np.zeros(draws.bootstrap)
    for part in parts:
        mine = counts[:, np.searchsorted(union, part.models)]
        total += _mean_rho(block_resamples(measure, part, mine), part, weights)
    # A mean of correlations of 1 may lie above it by rounding.
    low, high = np.clip(percentile_interval(total), -1.0, 1.0)
    return float(low), float(high)


def _null(units: Iterable[Iterable[Floats]], parts: Sequence[Block], weights: Floats) -> Floats:
    """The mean over pairs in every draw of a null, (draws,), from the draws of each block.

    Pairs with different common models are permuted separately, although they share platforms.
    Adding their sorted draws assumes the strongest dependence: the mean is right, and the upper
    quantiles and the p-value are conservative.
    """
    every = [_mean_rho(mine, part, weights) for mine, part in zip(units, parts, strict=True)]
    if len(every) == 1:
        return every[0]
    total: Floats = np.sum([np.sort(mine) for mine in every], axis=0)
    return total


def _mean_rho(units: Iterable[Floats], part: Block, weights: Floats) -> Floats:
    """Sum over the block's pairs of weight x rho in every draw, (draws,).

    A platform without weight is left out: its column may be constant and therefore undefined.
    """
    size = part.columns.size
    share = np.zeros((size, size))
    np.add.at(share, (part.source, part.target), weights[part.where] / 2)
    share += share.T
    used = np.flatnonzero(share.any(axis=0))
    # Columns that weigh alike up to a factor are summed, not multiplied singly: between two tiers
    # of complete measurements two sums are left.
    rows = share[np.ix_(used, used)]
    scale = rows.sum(axis=1)
    profiles = np.round(rows / scale[:, None], 12)
    _, first, member = np.unique(profiles, axis=0, return_index=True, return_inverse=True)
    joint = rows[np.ix_(first, first)] / np.outer(scale[first], scale[first])
    factor = (member.reshape(-1, 1) == np.arange(first.size)) * scale[:, None]
    sums = []
    for some in units:
        # One product of two large matrices per block is faster than many small ones in BLAS.
        flat = some[:, :, used].reshape(-1, used.size) @ factor
        sums.append(((flat @ joint) * flat).reshape(some.shape[0], -1).sum(axis=1))
    return np.concatenate(sums)


def _why_no_interval(fewest: int) -> str:
    few = count_of(fewest, "model")
    return f"no interval: {few} in a pair, at least {MIN_MODELS_FOR_INTERVAL} needed"

"""Rank agreement of single pairs of platforms."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    percentile_interval,
    permutation_p,
    resample_counts,
)
from fleetrank.analysis.arrays.frm import headroom, mid_p, null_p
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, block_size, kendall_matrix
from fleetrank.analysis.panel.pairs import (
    Block,
    Draws,
    Pair,
    block_resamples,
    block_rhos,
    block_rng,
    block_values,
    blocks,
    draws_for,
    null_draws,
    residual_draws,
    why_no_residual_null,
)
from fleetrank.analysis.panel.panel import LATENCY, Measure
from fleetrank.foundation.wording import count_of


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
        residual_null_mean: rho when only what FLOPs explain of latency transfers.
        residual_p: one-sided mid-p against that null; both are `None`, with the `reason`, if a
            common model has no FLOPs.
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
    residual_null_mean: float | None = None
    residual_p: float | None = None
    reason: str | None = None


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
    residual = _residual_null(measure, block, rho, draws, seed)
    rows = np.column_stack([rho, _taus(measure, block), low, high, *null, *residual]).tolist()
    undefined = "all models are equal on one side"
    if measure.given is not None:
        undefined += ", or the given ranking is constant or explains all"
    lacking = why_no_residual_null(measure, block.models)
    return [_figures(n_models, row, undefined, lacking) for row in rows]


def _taus(measure: Measure, block: Block) -> Floats:
    if measure.given is not None:
        return np.full(block.where.size, np.nan)
    return kendall_matrix(block_values(measure, block))[block.source, block.target]


def _null(
    measure: Measure, block: Block, rho: Floats, draws: Draws, seed: int
) -> tuple[Floats, Floats, Floats]:
    """P-value, mean and 95th percentile of the null for each pair of the block."""
    if not measure.has_latency:
        nothing = np.full(block.where.size, np.nan)
        return nothing, nothing, nothing
    null = _picked(null_draws(measure, block, draws, seed), block)
    if measure.name == LATENCY:
        rng = block_rng(measure, block, seed, "permutation")
        values = block_values(measure, block)
        p = permutation_p(values, draws.permutation, rng)[block.source, block.target]
    else:
        p = null_p(rho, null)
    p95: Floats = np.quantile(null, 0.95, axis=0)
    return p, null.mean(axis=0), p95


def _residual_null(
    measure: Measure, block: Block, rho: Floats, draws: Draws, seed: int
) -> tuple[Floats, Floats]:
    """Mean of the residual null and p-value for each pair of the block; NaN where undefined."""
    units = residual_draws(measure, block, draws, seed)
    if units is None:
        nothing = np.full(block.where.size, np.nan)
        return nothing, nothing
    null = _picked(units, block)
    return null.mean(axis=0), mid_p(rho, null)


def _figures(
    n_models: int, row: Sequence[float], undefined: str, lacking: str | None
) -> PairFigures:
    rho, tau, low, high, p, mean, p95, residual_mean, residual_p = (
        None if math.isnan(value) else value for value in row
    )
    if rho is None:
        return PairFigures(n_models=n_models, reason=undefined)
    reasons = [] if lacking is None else [lacking]
    if low is None:
        few = count_of(n_models, "model")
        reasons.insert(0, f"no interval: {few}, at least {MIN_MODELS_FOR_INTERVAL} needed")
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
        residual_null_mean=residual_mean,
        residual_p=residual_p,
        reason="; ".join(reasons) or None,
    )


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


def _intervals(measure: Measure, block: Block, draws: Draws, seed: int) -> tuple[Floats, Floats]:
    n_models = block.models.size
    if n_models < MIN_MODELS_FOR_INTERVAL:
        nothing = np.full(block.where.size, np.nan)
        return nothing, nothing
    rng = block_rng(measure, block, seed, "bootstrap")
    counts = resample_counts(n_models, draws.bootstrap, rng)
    return percentile_interval(_picked(block_resamples(measure, block, counts), block))

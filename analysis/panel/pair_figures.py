"""Rank agreement of single pairs of platforms."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    percentile_interval,
    permutation_p,
)
from fleetrank.analysis.arrays.frm import headroom, mid_p, null_p
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, kendall_matrix
from fleetrank.analysis.panel.pair_draws import PairDraws, Purpose
from fleetrank.analysis.panel.pairs import (
    Block,
    Pair,
    block_rng,
    block_values,
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
    return figures_of_pairs(PairDraws(measure, pairs, seed))


def figures_of_pairs(drawn: PairDraws) -> list[PairFigures]:
    """Figures of every pair of the draws, in their order."""
    figures: list[PairFigures] = [PairFigures(n_models=0)] * drawn.rho.size
    for number, part in enumerate(drawn.parts):
        for position, figure in zip(part.where, _part_figures(drawn, number), strict=True):
            figures[position] = figure
    return figures


def _part_figures(drawn: PairDraws, number: int) -> list[PairFigures]:
    measure, block = drawn.measure, drawn.parts[number]
    n_models = block.models.size
    if n_models < MIN_MODELS:
        reason = f"{count_of(n_models, 'model')} in common, at least {MIN_MODELS} needed"
        return [PairFigures(n_models=n_models, reason=reason)] * block.where.size
    columns = (
        drawn.rho[block.where],
        _taus(measure, block),
        *_interval(drawn, number),
        *_null(drawn, number),
        *_residual_null(drawn, number),
    )
    undefined = "all models are equal on one side"
    if measure.given is not None:
        undefined += ", or the given ranking is constant or explains all"
    lacking = why_no_residual_null(measure, block.models)
    rows = np.column_stack(columns).tolist()
    return [_figures(n_models, row, undefined, lacking) for row in rows]


def _unknown(block: Block) -> Floats:
    return np.full(block.where.size, np.nan)


def _taus(measure: Measure, block: Block) -> Floats:
    if measure.given is not None:
        return _unknown(block)
    return kendall_matrix(block_values(measure, block))[block.source, block.target]


def _null(drawn: PairDraws, number: int) -> tuple[Floats, Floats, Floats]:
    """P-value, mean and 95th percentile of the null for each pair of a part."""
    measure, block = drawn.measure, drawn.parts[number]
    null = drawn.rhos(Purpose.NULL, number) if measure.has_latency else None
    if null is None:
        return _unknown(block), _unknown(block), _unknown(block)
    if measure.name == LATENCY:
        rng = block_rng(measure, block, drawn.seed, "permutation")
        every = permutation_p(block_values(measure, block), drawn.draws.permutation, rng)
        p = every[block.source, block.target]
    else:
        p = null_p(drawn.rho[block.where], null)
    p95: Floats = np.quantile(null, 0.95, axis=0)
    return p, null.mean(axis=0), p95


def _residual_null(drawn: PairDraws, number: int) -> tuple[Floats, Floats]:
    """Mean of the residual null and p-value for each pair of a part; NaN where undefined."""
    block = drawn.parts[number]
    null = drawn.rhos(Purpose.RESIDUAL_NULL, number)
    if null is None:
        return _unknown(block), _unknown(block)
    return null.mean(axis=0), mid_p(drawn.rho[block.where], null)


def _interval(drawn: PairDraws, number: int) -> tuple[Floats, Floats]:
    block = drawn.parts[number]
    rhos = None
    if block.models.size >= MIN_MODELS_FOR_INTERVAL:
        rhos = drawn.rhos(Purpose.INTERVAL, number)
    return (_unknown(block), _unknown(block)) if rhos is None else percentile_interval(rhos)


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

"""What FRM's rank correlation is made of: its components alone, without each, and their shares."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analysis.pair_means import cluster_weights
from analysis.pairs import Pair, blocks
from analysis.panel import Measure, Panel, measures
from analysis.ranking import MIN_MODELS, Floats, require_finite

COMPONENTS = ("flops", "latency", "memory")


def variance_shares(logs: Floats) -> Floats:
    """What each summand contributes to the variance of the sum over models, per platform.

    From (n_components, n_models, n_platforms), logarithms of the components, to (n_components,
    n_platforms): cov(component, sum) / var(sum). Shares sum to 1; one below 0 belongs to a
    component that runs against the sum and narrows it, and then others exceed 1. NaN where the
    sum is equal for all models. Source: covariance decomposition of a variance, as Fields 2003
    applies it to logarithms.
    """
    require_finite(logs)
    total = logs.sum(axis=0)
    centred = total - total.mean(axis=0)
    variance = (centred**2).sum(axis=0)
    variance = np.where(np.ptp(total, axis=0) > _dust(logs), variance, np.nan)
    shares: Floats = (logs * centred).sum(axis=1) / variance
    return shares


def _dust(logs: Floats) -> Floats:
    """The largest range that rounding can leave in equal sums of such logarithms."""
    largest: Floats = 1e-12 * np.maximum(np.abs(logs).max(axis=(0, 1)), 1.0)
    return largest


def component_logs(panel: Panel) -> Floats:
    """Logarithms of FLOPs, latency and memory, (3, n_models, n_platforms).

    NaN in all three where one is missing or not above 0: the parts are then those of one whole.
    """
    logs: Floats = np.log(_complete(panel))
    return logs


def _complete(panel: Panel) -> Floats:
    """FLOPs, latency and memory where all three are known, NaN elsewhere."""
    known = np.isfinite(measures(panel)[1].values)
    flops = np.broadcast_to(panel.flops[:, None], known.shape)
    return np.stack(
        [np.where(known, part, np.nan) for part in (flops, panel.latency, panel.memory)]
    )


def component_measures(panel: Panel) -> tuple[Measure, ...]:
    """FRM and its parts, all over the models that have every component on a platform.

    Latency first, then latency given FLOPs, FRM, FRM without each component (without latency, it
    is FLOPs x memory), FLOPs and memory alone.
    """
    flops, latency, memory = _complete(panel)
    present = np.isfinite(latency)
    ones = np.where(present, 1.0, np.nan)
    alone = Measure(name="latency", rest=ones, latency=latency)
    return (
        alone,
        replace(alone, name="latency_given_flops", given=_positive_or_one(panel.flops)),
        Measure(name="frm", rest=flops * memory, latency=latency),
        Measure(name="frm_without_flops", rest=memory, latency=latency),
        Measure(name="frm_without_memory", rest=flops, latency=latency),
        Measure(name="frm_without_latency", rest=flops * memory, latency=ones, has_latency=False),
        Measure(name="flops", rest=flops, latency=ones, has_latency=False),
        Measure(name="memory", rest=memory, latency=ones, has_latency=False),
    )


def _positive_or_one(flops: Floats) -> Floats:
    """No model without FLOPs is in any block; a finite number keeps the ranking code plain."""
    return np.where(flops > 0, flops, 1.0)


def pair_shares(panel: Panel, pairs: Sequence[Pair]) -> Floats:
    """`variance_shares` of every pair, (3, n_pairs): the mean of its platforms, common models.

    NaN with fewer than 5 common models, or where FRM is equal for all on one side.
    """
    logs = component_logs(panel)
    shares = np.full((len(COMPONENTS), len(pairs)), np.nan)
    for block in blocks(np.isfinite(logs[0]), pairs):
        if block.models.size < MIN_MODELS:
            continue
        mine = variance_shares(logs[:, block.models][:, :, block.columns])
        shares[:, block.where] = (mine[:, block.source] + mine[:, block.target]) / 2
    return shares


def mean_shares(shares: Floats, clusters: Sequence[str]) -> Floats:
    """Shares (3, n_pairs) averaged inside each cluster first; NaN where no pair has any."""
    if np.isnan(shares[0]).all():
        return np.full(len(COMPONENTS), np.nan)
    weights, _, _ = cluster_weights(shares[0], clusters)
    means: Floats = (np.nan_to_num(shares) * weights).sum(axis=1)
    return means

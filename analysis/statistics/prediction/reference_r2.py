"""How well the ratio to one reference model predicts latency on another platform, on arrays."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import least_in_mean, resample_counts
from fleetrank.analysis.arrays.known_means import cluster_means, known_median
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, require_finite
from fleetrank.analysis.panel.conditions import Pair, PairGroup, chunks
from fleetrank.analysis.panel.draws import blocks

_EQUAL_SHARE = 1e-12
"""If the squares of the scored models are a smaller share of all, they differ by rounding only."""
HALF = 0.5
"""The study calls a transfer with a lower r2 failed. Source: its kernel ratio transfer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupR2:
    """r2 over many pairs, by reference and, last, of the median over references.

    Attributes:
        r2, share_above_half: mean over clusters and share of them that reach `HALF`,
            (n_models + 1,); NaN where there is none.
        n_clusters: with an r2, (n_models + 1,).
        median: over clusters, of the median over references; NaN without any.
        n_pairs: with an r2, (n_models + 1,).
        fewest, most: common models of such pairs; 0 without any.
    """

    r2: Floats
    share_above_half: Floats
    n_clusters: npt.NDArray[np.int64]
    median: float
    n_pairs: npt.NDArray[np.int64]
    fewest: int
    most: int


def reference_r2(
    source: Floats, target: Floats, counts: npt.NDArray[np.int64] | None = None
) -> Floats:
    """r2 of log latency with each model as the reference; the reference is not scored.

    1 - SS_res / SS_tot of the prediction itself (no line is fitted to it); 1 is
    perfect, below 0 is worse than the scored models' mean; r2 has no lower limit. From logarithms
    (n_models, n_pairs) twice to (n_references, n_pairs). `counts` (n_models,) says how often a
    resample drew each model. NaN where the scored models are all equal on the target, or the
    reference was not drawn.
    """
    require_finite(source)
    require_finite(target)
    weight = np.ones((source.shape[0], 1)) if counts is None else counts[:, None].astype(np.float64)
    total = weight.sum()
    off = _centred(target - source, weight)
    y = _centred(target, weight)
    # Around the weighted mean the sums over all but one model follow from those over all.
    residual = (weight * off**2).sum(axis=0) + total * off**2
    squares = (weight * y**2).sum(axis=0)
    others = total - weight
    scored = squares - weight * y**2 * total / np.where(others > 0, others, np.inf)
    is_defined = (weight > 0) & (others > 0) & (scored > _EQUAL_SHARE * squares)
    r2: Floats = np.where(is_defined, 1 - residual / np.where(is_defined, scored, 1.0), np.nan)
    return r2


def pair_r2(logs: Floats, pairs: Sequence[Pair]) -> tuple[Floats, npt.NDArray[np.int64]]:
    """r2 by reference (n_models, n_pairs), source first, and the number of common models.

    `logs` (n_models, n_platforms) is log latency, NaN where missing; NaN below 5 common models.
    """
    r2 = np.full((logs.shape[0], len(pairs)), np.nan)
    n_common = np.zeros(len(pairs), dtype=np.int64)
    for block in blocks(np.isfinite(logs), pairs):
        n_common[block.where] = block.models.size
        if block.models.size >= MIN_MODELS:
            values = logs[np.ix_(block.models, block.columns)]
            found = reference_r2(values[:, block.source], values[:, block.target])
            r2[np.ix_(block.models, block.where)] = found
    return r2, n_common


def median_draws(
    logs: Floats, pairs: Sequence[Pair], draws: int, rng: np.random.Generator
) -> Floats:
    """Median of r2 over the references in resamples of the models, (draws, n_pairs).

    All pairs share a resample; a model drawn twice is scored twice, and never with itself as the
    reference.
    """
    counts = resample_counts(logs.shape[0], draws, rng)
    medians = np.full((draws, len(pairs)), np.nan)
    for block in blocks(np.isfinite(logs), pairs):
        if block.models.size < MIN_MODELS:
            continue
        values = logs[np.ix_(block.models, block.columns)]
        source, target = values[:, block.source], values[:, block.target]
        for draw, mine in enumerate(counts[:, block.models]):
            if mine.any():
                medians[draw, block.where] = known_median(reference_r2(source, target, mine), 0)
    return medians


def with_enough_models(logs: Floats, group: PairGroup) -> PairGroup:
    """The group without the pairs that have fewer common models than `least_in_mean`."""
    n_common = np.zeros(len(group.pairs), dtype=np.int64)
    for block in blocks(np.isfinite(logs), group.pairs):
        n_common[block.where] = block.models.size
    is_in = n_common >= min(least_in_mean(n_common), n_common.max(initial=0))
    pairs = tuple(itertools.compress(group.pairs, is_in))
    return replace(group, pairs=pairs, clusters=group.clusters[is_in])


def group_r2(logs: Floats, group: PairGroup) -> GroupR2:
    """Averages r2 inside each cluster first, then over clusters."""
    sums, counts, above, n_pairs = np.zeros((4, logs.shape[0] + 1))
    medians, common = [], []
    for some, starts in chunks(group, logs.shape[0]):
        r2, n_common = pair_r2(logs, some)
        figures = np.vstack([r2, known_median(r2, 0)])
        by_cluster = cluster_means(figures, starts)
        n_pairs += np.isfinite(figures).sum(axis=1)
        sums += np.nansum(by_cluster, axis=1)
        counts += np.isfinite(by_cluster).sum(axis=1)
        above += (by_cluster >= HALF).sum(axis=1)
        medians.append(by_cluster[-1])
        common.append(n_common[np.isfinite(r2).any(axis=0)])
    used = np.concatenate(common)
    some_known = np.where(counts > 0, counts, np.nan)
    return GroupR2(
        r2=sums / some_known,
        share_above_half=above / some_known,
        n_clusters=counts.astype(np.int64),
        median=float(known_median(np.concatenate(medians), 0)),
        n_pairs=n_pairs.astype(np.int64),
        fewest=int(min(used, default=0)),
        most=int(max(used, default=0)),
    )


def _centred(values: Floats, weight: Floats) -> Floats:
    centred: Floats = values - (weight * values).sum(axis=0) / weight.sum()
    return centred

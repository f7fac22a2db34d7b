"""Mean precision, recall and F1 of frontiers in resamples of the models."""

from collections.abc import Sequence

import numpy as np

from fleetrank.analysis.arrays.bootstrap import resample_counts
from fleetrank.analysis.arrays.pareto import Mask
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.conditions import Pair
from fleetrank.analysis.panel.draws import PairBlock, blocks
from fleetrank.analysis.statistics.frontiers.pair_frontiers import frontiers_of

_MAX_VALUES = 2_000_000
"""Draws x pairs processed at once: 16 MB an array."""


def resampled_overlaps(
    values: Floats, pairs: Sequence[Pair], weights: Floats, draws: int, rng: np.random.Generator
) -> Floats:
    """Mean precision, recall and F1 over pairs in every draw, (3, draws).

    `values` is (n_models, n_platforms, n_objectives), `weights` (n_pairs,). The frontiers are those
    of all models: a resample lacks a third of the models, so its own frontiers would be of another
    kind. It only says how often each member counts, the same in all pairs. A pair of whose frontier
    no member is drawn is left out of that draw; NaN where that is every pair.
    """
    parts = list(blocks(np.asarray(np.isfinite(values).all(axis=2)), pairs))
    models = np.unique(np.concatenate([part.models for part in parts]))
    counts = resample_counts(models.size, draws, rng).astype(np.float64)
    sums, total = np.zeros((2, 3, draws))
    for part in parts:
        masks = frontiers_of(values, part)
        is_member = masks.any(axis=1)
        mine = counts[:, np.searchsorted(models, part.models[is_member])]
        added, known = _sums(masks[is_member], mine, part, weights[part.where])
        sums, total = sums + added, total + known
    means: Floats = np.divide(sums, total, out=np.full(sums.shape, np.nan), where=total > 0)
    return means


def _sums(masks: Mask, counts: Floats, part: PairBlock, weights: Floats) -> tuple[Floats, Floats]:
    """Weighted sums over the pairs of a part, and of the weights behind them, (3, draws) each."""
    sums, total = np.zeros((2, 3, len(counts)))
    sizes = counts @ masks
    step = max(1, _MAX_VALUES // len(counts))
    for start in range(0, part.where.size, step):
        some = slice(start, start + step)
        both = counts @ (masks[:, part.source[some]] & masks[:, part.target[some]])
        source, target = sizes[:, part.source[some]], sizes[:, part.target[some]]
        for at, size in enumerate((source, target, (source + target) / 2)):
            sums[at] += (both / np.maximum(size, 1)) @ weights[some]
            total[at] += (size > 0) @ weights[some]
    return sums, total

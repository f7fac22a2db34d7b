"""Pairs of models that FLOPs order wrongly: a wrong decision for each."""

import zlib
from collections.abc import Sequence

import numpy as np

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    percentile_interval,
    resample_counts,
)
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats
from fleetrank.analysis.panel.panel import Measure

DRAWS = 1000


def wrong_pairs(flops: Floats, values: Floats) -> tuple[Floats, Floats]:
    """How often FLOPs order each pair of models wrongly, and on how many platforms it is a pair.

    From (n_models,) and (n_models, n_platforms), NaN where unknown, to (n_models, n_models) twice:
    the first is symmetric. Two models with equal FLOPs or equal values count one half.
    Platforms with fewer than 5 models that have both are left out.
    """
    wrong, known = np.zeros((2, flops.size, flops.size))
    for column in values.T:
        rows = np.flatnonzero(np.isfinite(column) & np.isfinite(flops))
        if rows.size < MIN_MODELS:
            continue
        by_flops, by_value = (
            np.sign(one[rows, None] - one[rows]).astype(np.int8) for one in (flops, column)
        )
        at = np.ix_(rows, rows)
        wrong[at] += (1 - by_flops * by_value) / 2
        known[at] += 1
    np.fill_diagonal(wrong, 0.0)
    np.fill_diagonal(known, 0.0)
    return wrong, known


def wrong_share(wrong: Floats, known: Floats, counts: Floats) -> Floats:
    """Share of the pairs that are ordered wrongly in resamples (draws, n_models), (draws,)."""
    part, whole = (((counts @ of) * counts).sum(axis=1) for of in (wrong, known))
    return np.divide(part, whole, out=np.full(len(counts), np.nan), where=whole > 0)


def share_with_interval(
    measure: Measure, flops: Floats, platforms: Sequence[str], seed: int
) -> tuple[int, float, float | None, float | None]:
    """Number of pairs over all platforms, the share that FLOPs order wrongly, and its interval.

    95 % percentile bootstrap over models, the same in all platforms; `None` below 9 models.
    """
    wrong, known = wrong_pairs(flops, measure.values)
    rows = np.flatnonzero(known.any(axis=0))
    wrong, known = wrong[np.ix_(rows, rows)], known[np.ix_(rows, rows)]
    share = float(wrong.sum() / known.sum())
    n_pairs = round(known.sum() / 2)
    if rows.size < MIN_MODELS_FOR_INTERVAL:
        return n_pairs, share, None, None
    key = zlib.crc32(" ".join([measure.name, *platforms]).encode())
    counts = resample_counts(rows.size, DRAWS, np.random.default_rng([seed, key]))
    low, high = percentile_interval(wrong_share(wrong, known, counts.astype(np.float64)))
    return n_pairs, share, float(low), float(high)

"""Pairs of models that FLOPs order wrongly: a wrong decision for each."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    shares: Floats = np.divide(part, whole, out=np.full(len(counts), np.nan), where=whole > 0)
    return shares


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongShare:
    """Of n_pairs pairs of n_models models over all platforms, the share ordered wrongly by FLOPs.

    Its 95 % interval is `None` below 9 models.
    """

    n_models: int
    n_pairs: int
    wrong_share: float
    wrong_low: float | None = None
    wrong_high: float | None = None


def share_with_interval(
    measure: Measure, flops: Floats, platforms: Sequence[str], seed: int
) -> WrongShare:
    """The share of pairs that FLOPs order wrongly.

    95 % percentile bootstrap over models, the same in all platforms; `None` below 9 models.
    """
    wrong, known = wrong_pairs(flops, measure.values)
    rows = np.flatnonzero(known.any(axis=0))
    wrong, known = wrong[np.ix_(rows, rows)], known[np.ix_(rows, rows)]
    found = WrongShare(
        n_models=rows.size,
        n_pairs=round(known.sum() / 2),
        wrong_share=float(wrong.sum() / known.sum()),
    )
    if rows.size < MIN_MODELS_FOR_INTERVAL:
        return found
    key = zlib.crc32(" ".join([measure.name, *platforms]).encode())
    counts = resample_counts(rows.size, DRAWS, np.random.default_rng([seed, key]))
    low, high = percentile_interval(wrong_share(wrong, known, counts.astype(np.float64)))
    return replace(found, wrong_low=float(low), wrong_high=float(high))

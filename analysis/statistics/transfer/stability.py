"""How much a model's rank and ratio vary over platforms, on arrays."""

import numpy as np

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    percentile_interval,
    resample_counts,
)
from fleetrank.analysis.arrays.ranking import Floats, average_ranks, require_finite

STATISTICS = ("rank_std", "rank_cv", "ratio_std", "ratio_cv")
RESAMPLES = 1000


def spreads(ratios: Floats) -> Floats:
    """Per model the spread over platforms of its rank and of its ratio.

    From (n_models, n_platforms), at least 2 platforms, to (n_models, 4): standard deviation
    (n - 1) and coefficient of variation (standard deviation over mean) of the rank, then of the
    ratio.

    Raises:
        ValueError: fewer than 2 platforms, NaN, or a ratio of 0 or less.
    """
    require_finite(ratios)
    if ratios.shape[1] < 2:
        raise ValueError("a spread needs 2 platforms")
    if (ratios <= 0).any():
        raise ValueError("a ratio is above 0: take out models that have none")
    columns = []
    for values in (average_ranks(ratios), ratios):
        deviation = values.std(axis=1, ddof=1)
        # Equal values leave rounding dust in their deviation from the mean.
        deviation[np.ptp(values, axis=1) == 0] = 0.0
        columns += [deviation, deviation / values.mean(axis=1)]
    return np.column_stack(columns)


def mean_interval(values: Floats, rng: np.random.Generator) -> tuple[Floats, Floats] | None:
    """95 % percentile bootstrap over models of column means of (n_models, n_columns).

    `None` below 9 models. Ranks are those among all models, not taken anew in a resample.
    """
    require_finite(values)
    n_models = values.shape[0]
    if n_models < MIN_MODELS_FOR_INTERVAL:
        return None
    counts = resample_counts(n_models, RESAMPLES, rng)
    return percentile_interval(counts @ values / n_models)

"""Latency on one platform predicted from another, on arrays of logarithms."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import (
    MIN_MODELS,
    Floats,
    average_ranks,
    require_finite,
    spearman_matrix,
)
from fleetrank.analysis.panel.pairs import Block, Pair, blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPredictions:
    """Errors and ranks of the common models of pairs; NaN is not common or undefined.

    Attributes:
        n_common: models in common, (n_pairs,).
        errors: leave-one-out |prediction / measured - 1|, (n_models, n_pairs).
        shifts: |rank on target - rank on source| among the common models, (n_models, n_pairs).
        rho: Spearman's inside each group with at least 5 common models, (n_groups, n_pairs).
    """

    n_common: npt.NDArray[np.int64]
    errors: Floats
    shifts: Floats
    rho: Floats


def left_out_errors(source: Floats, target: Floats) -> Floats:
    """Absolute relative error of predicting each model's latency without that model.

    Least squares of log target on log source over the other models. From logarithms
    (n_models, n_pairs) twice to (n_models, n_pairs); NaN where the other models are equal, or
    nearly so, on the source: they define no line, or one with an overflowing value.

    Source: residual / (1 - leverage) is the left-out residual of a linear fit (Allen 1974).
    """
    require_finite(source)
    require_finite(target)
    n = source.shape[0]
    x = source - source.mean(axis=0)
    y = target - target.mean(axis=0)
    square = (x**2).sum(axis=0)
    has_spread = (np.ptp(source, axis=0) > 0) & (square > 0)
    safe = np.where(has_spread, square, 1.0)
    residual = y - x * ((x * y).sum(axis=0) / safe)
    left = 1 - 1 / n - x**2 / safe
    # If only one model differs, its leverage is 1 up to rounding.
    is_fixed = has_spread & (left > 1e-12)
    left_out = np.where(is_fixed, residual / np.where(is_fixed, left, 1.0), np.nan)
    with np.errstate(over="ignore"):
        errors = np.abs(np.expm1(-left_out))
    return np.where(np.isfinite(errors), errors, np.nan)


def predictions(
    logs: Floats, pairs: Sequence[Pair], groups: Sequence[npt.NDArray[np.bool_]]
) -> PairPredictions:
    """Errors, shifts and rho of every pair, source first.

    `logs` (n_models, n_platforms) is log latency, NaN where missing; `groups` are masks over
    models. Below 5 common models everything is NaN.
    """
    found = PairPredictions(
        n_common=np.zeros(len(pairs), dtype=np.int64),
        errors=np.full((logs.shape[0], len(pairs)), np.nan),
        shifts=np.full((logs.shape[0], len(pairs)), np.nan),
        rho=np.full((len(groups), len(pairs)), np.nan),
    )
    for block in blocks(np.isfinite(logs), pairs):
        found.n_common[block.where] = block.models.size
        if block.models.size >= MIN_MODELS:
            _fill(found, logs[np.ix_(block.models, block.columns)], block, groups)
    return found


def _fill(
    found: PairPredictions, values: Floats, block: Block, groups: Sequence[npt.NDArray[np.bool_]]
) -> None:
    at = np.ix_(block.models, block.where)
    ranks = average_ranks(values)
    found.errors[at] = left_out_errors(values[:, block.source], values[:, block.target])
    found.shifts[at] = np.abs(ranks[:, block.target] - ranks[:, block.source])
    for number, group in enumerate(groups):
        mine = values[group[block.models]]
        if mine.shape[0] >= MIN_MODELS:
            found.rho[number, block.where] = spearman_matrix(mine)[block.source, block.target]

"""Errors of predicting latency on one platform from another, by model and by family."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    percentile_interval,
    resample_counts,
)
from fleetrank.analysis.arrays.known_means import cluster_means, known_mean, known_median
from fleetrank.analysis.arrays.ranking import (
    MIN_MODELS,
    Floats,
    average_ranks,
    require_finite,
    spearman_matrix,
)
from fleetrank.analysis.panel.pair_groups import PairGroup, chunks
from fleetrank.analysis.panel.pairs import Block, Pair, blocks
from fleetrank.analysis.stored.columns import NO_FAMILY

ALL = "all"
"""Each family counts once, for any number of models."""

Families = Mapping[str, npt.NDArray[np.bool_]]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyErrors:
    """Figures of the families in order, then of all: (n_families + 1, ...); NaN is undefined.

    Attributes:
        n_models: models with an error.
        mean, median: of the error; for all, over families.
        shift: mean |rank shift|.
        rho: Spearman's; for all, over all models.
    """

    n_models: npt.NDArray[np.int64]
    mean: Floats
    median: Floats
    shift: Floats
    rho: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupErrors:
    """Families over many pairs; the median is over clusters.

    Attributes:
        by_model: each model's error, mean over clusters, (n_models,); NaN where it has none.
        n_pairs, n_clusters: with an error.
        fewest: fewest common models of a pair with an error, else of any pair.
    """

    figures: FamilyErrors
    by_model: Floats
    n_pairs: int
    n_clusters: int
    fewest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Some clusters of a group.

    Attributes:
        errors, shifts, rho: figures by model and by family, (..., n_clusters).
        n_common, is_used: (n_pairs,).
    """

    errors: Floats
    shifts: Floats
    rho: Floats
    n_common: npt.NDArray[np.int64]
    is_used: npt.NDArray[np.bool_]


def family_masks(families: Sequence[str | None]) -> Families:
    """Which models (n_models,) belong to each family, sorted by name."""
    names = np.array([name or NO_FAMILY for name in families])
    return {str(name): names == name for name in np.unique(names)}


def pair_errors(
    logs: Floats, pairs: Sequence[Pair], families: Families
) -> tuple[FamilyErrors, npt.NDArray[np.int64]]:
    """Figures of every pair, (n_families + 1, n_pairs), and its common models, (n_pairs,).

    Mean and median are over the models of a family.
    """
    found = predictions(logs, pairs, _groups(families))
    masks = families.values()
    figures = FamilyErrors(
        n_models=_count(found.errors, families),
        mean=_with_all([known_mean(found.errors[mask], 0) for mask in masks], known_mean),
        median=_with_all([known_median(found.errors[mask], 0) for mask in masks], known_median),
        shift=_with_all([known_mean(found.shifts[mask], 0) for mask in masks], known_mean),
        rho=found.rho,
    )
    return figures, found.n_common


def group_errors(logs: Floats, group: PairGroup, families: Families) -> GroupErrors:
    """Figures over the pairs of a group, (n_families + 1,).

    A model's error is averaged inside each cluster, then over clusters; a family's mean is over
    its models, its median over its clusters' means.
    """
    sums, counts = np.zeros((2, logs.shape[0])), np.zeros((2, logs.shape[0]))
    medians, rhos, common, used = [], [], [], []
    for part in _parts(logs, group, families):
        both = np.array([part.errors, part.shifts])
        sums += np.nansum(both, axis=2)
        counts += np.isfinite(both).sum(axis=2)
        medians.append([known_mean(part.errors[mask], 0) for mask in families.values()])
        rhos.append(part.rho)
        common.append(part.n_common)
        used.append(part.is_used)
    by_model, shifts = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    by_cluster = np.concatenate(medians, axis=1)
    n_common, is_used = np.concatenate(common), np.concatenate(used)
    figures = FamilyErrors(
        n_models=_count(by_model[:, None], families)[:, 0],
        mean=_with_all(_by_family(by_model, families), known_mean),
        median=_with_all(list(known_median(by_cluster, 1)), known_median),
        shift=_with_all(_by_family(shifts, families), known_mean),
        rho=known_mean(np.concatenate(rhos, axis=1), 1),
    )
    return GroupErrors(
        figures=figures,
        by_model=by_model,
        n_pairs=int(is_used.sum()),
        n_clusters=int(np.isfinite(by_cluster).any(axis=0).sum()),
        fewest=int(n_common[is_used].min() if is_used.any() else n_common.min()),
    )


def error_intervals(
    by_model: Floats, families: Families, draws: int, rng: np.random.Generator
) -> list[tuple[float, float] | None]:
    """95 % percentile bootstrap over models of each family's mean, then of all; `None` below 9.

    The fits are not repeated in a resample; for all, families weigh the same in each resample.
    """
    known = np.isfinite(by_model)
    masks = [mask & known for mask in families.values()]
    return [_interval(by_model, [mask], draws, rng) for mask in masks] + [
        _interval(by_model, masks, draws, rng)
    ]


def _interval(
    by_model: Floats, masks: Sequence[npt.NDArray[np.bool_]], draws: int, rng: np.random.Generator
) -> tuple[float, float] | None:
    rows = np.flatnonzero(np.any(masks, axis=0))
    if rows.size < MIN_MODELS_FOR_INTERVAL:
        return None
    counts = resample_counts(rows.size, draws, rng).astype(np.float64)
    member = np.array([mask[rows] for mask in masks], dtype=np.float64).T
    weight = counts @ member
    sums = (counts * by_model[rows]) @ member
    means = known_mean(np.where(weight > 0, sums / np.maximum(weight, 1), np.nan), 1)
    low, high = percentile_interval(means)
    return float(low), float(high)


def _parts(logs: Floats, group: PairGroup, families: Families) -> Iterator[_Part]:
    for mine, starts in chunks(group, logs.shape[0]):
        found = predictions(logs, mine, _groups(families))
        yield _Part(
            errors=cluster_means(found.errors, starts),
            shifts=cluster_means(found.shifts, starts),
            rho=cluster_means(found.rho, starts),
            n_common=found.n_common,
            is_used=np.any(np.isfinite(found.errors), axis=0),
        )


def _groups(families: Families) -> list[npt.NDArray[np.bool_]]:
    masks = list(families.values())
    return [*masks, np.any(masks, axis=0)]


def _by_family(values: Floats, families: Families) -> list[Floats]:
    return [known_mean(values[mask], 0) for mask in families.values()]


def _count(errors: Floats, families: Families) -> npt.NDArray[np.int64]:
    known = np.isfinite(errors)
    return np.array([known[mask].sum(axis=0) for mask in _groups(families)])


def _with_all(by_family: list[Floats], over: Callable[[Floats, int], Floats]) -> Floats:
    return np.array([*by_family, over(np.array(by_family), 0)])

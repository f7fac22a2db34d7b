"""Errors of predicting latency on one tier from another, by family of models."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    percentile_interval,
    resample_counts,
)
from fleetrank.analysis.arrays.known_means import cluster_means, known, known_mean
from fleetrank.analysis.arrays.ranking import (
    MIN_MODELS,
    Floats,
    average_ranks,
    few_models_warning,
    require_finite,
    spearman_matrix,
)
from fleetrank.analysis.arrays.sample_size import few_models_note
from fleetrank.analysis.panel.conditions import (
    Between,
    Pair,
    PairCounts,
    PairGroup,
    chunks,
    directed_pairs,
    sampled,
    tier_groups,
)
from fleetrank.analysis.panel.draws import PairBlock, blocks, draws_for
from fleetrank.analysis.panel.panel import measures
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.columns import NO_FAMILY
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.wording import count_of

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
    found: PairPredictions,
    values: Floats,
    block: PairBlock,
    groups: Sequence[npt.NDArray[np.bool_]],
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
class GroupErrors:
    """Figures of the families in order, then of all, (n_families + 1,); NaN is undefined.

    Attributes:
        by_model: each model's error, mean over clusters, (n_models,); NaN where it has none.
        n_models: models with an error.
        mean: of the error; for all, over families.
        shift: mean |rank shift|; for all, over families.
        rho: Spearman's; for all, over all models.
        counts: pairs and clusters with an error.
        fewest: fewest common models of a pair with an error, else of any pair.
    """

    by_model: Floats
    n_models: npt.NDArray[np.int64]
    mean: Floats
    shift: Floats
    rho: Floats
    counts: PairCounts
    fewest: int


def family_masks(families: Sequence[str | None]) -> Families:
    """Which models (n_models,) belong to each family, sorted by name."""
    names = np.array([name or NO_FAMILY for name in families])
    return {str(name): names == name for name in np.unique(names)}


def group_errors(logs: Floats, group: PairGroup, families: Families) -> GroupErrors:
    """Figures over the pairs of a group, from log latency (n_models, n_platforms).

    A model's error is averaged inside each cluster, then over clusters, then over the models of
    a family.
    """
    masks = list(families.values())
    sums, counts = np.zeros((2, 2, logs.shape[0]))
    rhos, common, used, clusters = [], [], [], 0
    for pairs, starts in chunks(group, logs.shape[0]):
        found = predictions(logs, pairs, [*masks, np.any(masks, axis=0)])
        both = np.array([cluster_means(one, starts) for one in (found.errors, found.shifts)])
        sums += np.nansum(both, axis=2)
        counts += np.isfinite(both).sum(axis=2)
        rhos.append(cluster_means(found.rho, starts))
        common.append(found.n_common)
        used.append(np.isfinite(found.errors).any(axis=0))
        clusters += int(np.isfinite(both[0]).any(axis=0).sum())
    by_model, shifts = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    n_common, is_used = np.concatenate(common), np.concatenate(used)
    return GroupErrors(
        by_model=by_model,
        n_models=np.array(
            [np.isfinite(by_model[mask]).sum() for mask in (*masks, np.any(masks, 0))]
        ),
        mean=_by_family(by_model, masks),
        shift=_by_family(shifts, masks),
        rho=known_mean(np.concatenate(rhos, axis=1), 1),
        counts=PairCounts(n_pairs=int(is_used.sum()), n_clusters=clusters),
        fewest=int((n_common[is_used] if is_used.any() else n_common).min()),
    )


def _by_family(values: Floats, masks: Sequence[npt.NDArray[np.bool_]]) -> Floats:
    means = np.array([known_mean(values[mask], 0) for mask in masks])
    return np.append(means, known_mean(means, 0))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyPrediction(Between):
    """How well latency on the target tier is predicted for one family; `None` is undefined.

    Attributes:
        family: `ALL` counts each family once.
        n_models: models with an error; `n_fitted` is the fewest common models of any pair.
        counts: pairs with an error.
        low_percent, high_percent: of the mean error.
        reason: why a figure is missing.
    """

    family: str
    n_models: int
    n_fitted: int
    counts: PairCounts
    mean_error_percent: float | None
    low_percent: float | None
    high_percent: float | None
    rho: float | None
    mean_abs_shift: float | None
    reason: str | None


def predictability_table(session: Session) -> Table:
    """Leave-one-out error by family, from tier to tier.

    Raises:
        NoDataError: fewer than two platforms match.
    """
    panel, seed = session.panel, session.selection.seed
    pairs = directed_pairs(panel, session.selection)
    groups = tier_groups(panel, pairs, is_directed=True)
    draws = draws_for([pair for group in groups for pair in group.pairs]).bootstrap
    logs, families = measures(panel)[0].values, family_masks(panel.families)
    texts = {
        "min_models": MIN_MODELS,
        "min_interval": MIN_MODELS_FOR_INTERVAL,
        "seed": seed,
        "draws": draws,
    }
    return Table.of(
        FamilyPrediction,
        [row for one in groups for row in _of_group(logs, one, families, (draws, seed))],
        title="Predictability by family",
        notes=(
            *panel.notes,
            *sampled(session, len(pairs)),
            *few_models_warning(len(panel.models)),
        ),
        explanation=(*explained("predict/errors", texts), *few_models_note(len(panel.models))),
    )


def _of_group(
    logs: Floats, group: PairGroup, families: Families, random: tuple[int, int]
) -> Iterator[FamilyPrediction]:
    draws, seed = random
    found = group_errors(logs, group, families)
    names = f"predictability/{group.source}/{group.target}"
    rng = np.random.default_rng([seed, zlib.crc32(names.encode())])
    intervals = error_intervals(found.by_model, families, draws, rng)
    for at, (family, interval) in enumerate(zip([*families, ALL], intervals, strict=True)):
        low, high = (100 * bound for bound in interval) if interval else (None, None)
        mean, rho = known(100 * found.mean[at]), known(found.rho[at])
        n_models = int(found.n_models[at])
        reason = _reason(n_models, found.fewest, mean, rho)
        if reason is None and low is None:
            reason = f"no interval below {MIN_MODELS_FOR_INTERVAL} models"
        yield FamilyPrediction(
            level=group.level,
            source=group.source,
            target=group.target,
            family=family,
            n_models=n_models,
            n_fitted=found.fewest,
            counts=found.counts,
            mean_error_percent=mean,
            low_percent=low,
            high_percent=high,
            rho=rho,
            mean_abs_shift=known(found.shift[at]),
            reason=reason,
        )


def _reason(n_models: int, n_fitted: int, mean: float | None, rho: float | None) -> str | None:
    if n_fitted < MIN_MODELS:
        return f"{count_of(n_fitted, 'model')} in common, at least {MIN_MODELS} needed"
    if mean is None:
        return "the other models are all equal on the source, or the family has no common model"
    if n_models < MIN_MODELS:
        return f"no rho: too few, {n_models} of the {MIN_MODELS} models needed"
    return None if rho is not None else "no rho: too few in any pair, or all equal on one side"

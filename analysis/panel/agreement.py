"""How far two conditions, or means over many pairs of them, rank models alike.

A pair is of two columns of values, whatever they are of: platforms, workloads on one platform, or
sweeps. Here are the interval of rho, its nulls, and means over pairs, clusters first. Rho over the
common models is in `draws`, which ranks them once for all of these.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    adjust_p,
    least_in_mean,
    percentile_interval,
    permutation_p,
)
from fleetrank.analysis.arrays.frm import headroom, mid_p, null_p
from fleetrank.analysis.arrays.known_means import cluster_weights
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, kendall_matrix, without_rounding
from fleetrank.analysis.panel.conditions import (
    Compared,
    Level,
    Pair,
    PairGroup,
    compared,
    unlike_facts,
)
from fleetrank.analysis.panel.draws import (
    PairDraws,
    Purpose,
    block_resamples,
    block_rng,
    block_values,
    sums_of,
    why_no_residual_null,
)
from fleetrank.analysis.panel.panel import LATENCY, Measure
from fleetrank.analysis.panel.session import Session
from fleetrank.foundation.vocabulary import Axis
from fleetrank.foundation.wording import count_of

MAY_BE_CHANCE = 0.05
"""Above this one-sided p, FLOPs can explain a rho."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RhoNulls:
    """What rho would be without a common order of latency, and how unlikely the found one is then.

    Attributes:
        null_mean, null_p95: rho when latencies are permuted in every condition; `None`, as is the
            p-value, for a measure without latency.
        headroom: (rho - null_mean) / (1 - null_mean).
        residual_null_mean: rho when only what FLOPs explain of latency transfers.
        residual_p: one-sided mid-p against that null; both are `None`, with the `reason`, if a
            common model has no FLOPs.
        p_value: of a pair's latency two-sided by permutation; otherwise one-sided against the
            null. It and `null_p95` are upper bounds in a mean whose pairs have unlike models.
        p_adjusted, residual_p_adjusted: Benjamini-Hochberg over the pairs computed together.
    """

    null_mean: float | None = None
    null_p95: float | None = None
    headroom: float | None = None
    residual_null_mean: float | None = None
    residual_p: float | None = None
    residual_p_adjusted: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AveragedPairs:
    """The pairs of a mean: platforms, and device models (clusters), that have a rho.

    Attributes:
        most_models: that a pair has in common; the fewest are the agreement's `n_models`. If a pair
            has the models that an interval needs, those with fewer are left out, with the `reason`.
        std_over_pairs: spread of the clusters' means; no uncertainty of `rho`.
    """

    most_models: int | None = None
    n_pairs: int | None = None
    n_clusters: int | None = None
    std_over_pairs: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RhoCeiling:
    """The highest rho that noise allows.

    Attributes:
        reliability_source, reliability_target: of a pair, how well each side agrees with itself.
        ceiling: the root of their product, of a mean its mean; `no_ceiling` says why it lacks.
        method: how the reliabilities were found.
    """

    reliability_source: float | None = None
    reliability_target: float | None = None
    ceiling: float | None = None
    method: str | None = None
    no_ceiling: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InsideGap:
    """95 % interval of rho of all models together minus that of alike models."""

    gap_low: float
    gap_high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far one measure ranks models alike on two conditions, or on average over such pairs.

    A row of several tables: each shows the columns that it has, those of the parts included. `None`
    has its `reason`.

    Attributes:
        source, target: platform keys of a pair; tiers, runtimes or other values of a group. A
            platform alone has no target: the figure is its agreement with itself.
        platform_key: of a pair that is of one platform.
        n_models: fewest models that a pair has in common.
        rho: Spearman's.
        low, high: 95 % percentile bootstrap over models; `None` below 9 of them. In a mean each
            resample serves all pairs.
        tau_b: of a pair; `None` for a partial correlation.
        unlike: facts that differ and change the meaning of the figure; `None` without any.
        nulls, averaged, noise, gap: empty where a table has none.
    """

    measure: str
    n_models: int
    level: Level = Level.PAIR
    source: str = ""
    target: str | None = None
    platform_key: str | None = None
    rho: float | None = None
    low: float | None = None
    high: float | None = None
    tau_b: float | None = None
    nulls: RhoNulls = RhoNulls()
    averaged: AveragedPairs = AveragedPairs()
    noise: RhoCeiling = RhoCeiling()
    gap: InsideGap | None = None
    unlike: str | None = None
    reason: str | None = None

    @property
    def exceeds_flops(self) -> bool | None:
        """Whether rho exceeds its residual null, up to `MAY_BE_CHANCE`; `None` if unknown."""
        residual_p = self.nulls.residual_p
        return None if residual_p is None else residual_p <= MAY_BE_CHANCE

    @property
    def models_text(self) -> str:
        """Number of models as a text: `13 models`, or `9 to 13 models` if pairs differ."""
        most = self.averaged.most_models
        if most in {None, self.n_models}:
            return count_of(self.n_models, "model")
        return f"{self.n_models} to {count_of(most or 0, 'model')}"


def pair_figures(measure: Measure, pairs: Sequence[Pair], seed: int) -> list[Agreement]:
    """Figures of every pair, in the order given."""
    return figures_of_pairs(PairDraws(measure, pairs, seed))


def figures_of_pairs(drawn: PairDraws) -> list[Agreement]:
    """Figures of every pair of the draws, in their order."""
    blank = Agreement(measure=drawn.measure.name, n_models=0)
    figures = [blank] * drawn.rho.size
    for number, part in enumerate(drawn.parts):
        mine = replace(blank, n_models=part.models.size)
        for position, figure in zip(part.where, _of_part(drawn, number, mine), strict=True):
            figures[position] = figure
    return figures


def _of_part(drawn: PairDraws, number: int, blank: Agreement) -> list[Agreement]:
    measure, block = drawn.measure, drawn.parts[number]
    n = count_of(blank.n_models, "model")
    if blank.n_models < MIN_MODELS:
        few = f"{n} in common, at least {MIN_MODELS} needed"
        return [replace(blank, reason=few)] * block.where.size
    columns = {"rho": drawn.rho[block.where]}
    if measure.given is None:
        taus = kendall_matrix(block_values(measure, block))
        columns["tau_b"] = taus[block.source, block.target]
    reasons = [why_no_residual_null(measure, block.models)]
    rhos = None
    if blank.n_models >= MIN_MODELS_FOR_INTERVAL:
        rhos = drawn.rhos(Purpose.INTERVAL, number)
    if rhos is None:
        reasons.insert(0, f"no interval: {n}, at least {MIN_MODELS_FOR_INTERVAL} needed")
    else:
        columns["low"], columns["high"] = percentile_interval(rhos)
    undefined = "all models are equal on one side"
    if measure.given is not None:
        undefined += ", or the given ranking is constant or explains all"
    reason = "; ".join(text for text in reasons if text) or None
    figures = []
    for known, nulls in zip(_rows(columns), _rows(_nulls(drawn, number)), strict=True):
        if "rho" not in known:
            figures.append(replace(blank, reason=undefined))
            continue
        if "null_mean" in nulls:
            nulls["headroom"] = headroom(known["rho"], nulls["null_mean"])
        figures.append(replace(blank, reason=reason, nulls=RhoNulls(**nulls), **known))
    return figures


def _rows(columns: Mapping[str, Floats]) -> list[dict[str, Any]]:
    """The known values of each row, by name."""
    return [
        {name: value for name, value in zip(columns, row, strict=True) if not math.isnan(value)}
        for row in np.column_stack(list(columns.values())).tolist()
    ]


def _nulls(drawn: PairDraws, number: int) -> dict[str, Floats]:
    """P-value, mean and 95th percentile of the null, and the same of the residual null."""
    measure, block, rho = drawn.measure, drawn.parts[number], drawn.rho[drawn.parts[number].where]
    # Each pair has a row, also where nothing is known of it.
    found = {"null_mean": np.full(rho.shape, np.nan)}
    null = drawn.rhos(Purpose.NULL, number) if measure.has_latency else None
    if null is not None:
        found["null_mean"], found["null_p95"] = null.mean(axis=0), np.quantile(null, 0.95, axis=0)
        if measure.name == LATENCY:
            rng = block_rng(measure, block, drawn.seed, "permutation")
            every = permutation_p(block_values(measure, block), drawn.draws.permutation, rng)
            found["p_value"] = every[block.source, block.target]
        else:
            found["p_value"] = null_p(rho, null)
    residual = drawn.rhos(Purpose.RESIDUAL_NULL, number)
    if residual is not None:
        found["residual_null_mean"] = residual.mean(axis=0)
        found["residual_p"] = mid_p(rho, residual)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mean:
    """A mean over some of the pairs of the draws.

    Attributes:
        weights: (n_pairs,), 0 where a pair is not in the mean.
        used: numbers of the parts that have a weight.
        models: rows of the models that any pair has in common.
    """

    drawn: PairDraws
    weights: Floats
    used: tuple[int, ...]
    models: npt.NDArray[np.int64]

    def of_part(self, number: int) -> Floats:
        """The weights of the pairs of a part."""
        return self.weights[self.drawn.parts[number].where]

    def resampled(self) -> Floats:
        """The mean over pairs in every resample of the models, (draws,); each serves all pairs."""
        drawn, first = self.drawn, self.used[0]
        if len(self.used) == 1:
            alone = drawn.sums(Purpose.MEAN_INTERVAL, first, self.of_part(first))
            if alone is not None:
                return alone
        counts = drawn.counts(first, self.models.size, Purpose.MEAN_INTERVAL)
        total = np.zeros(len(counts))
        for at in self.used:
            part = drawn.parts[at]
            mine = counts[:, np.searchsorted(self.models, part.models)]
            total += sums_of(block_resamples(drawn.measure, part, mine), part, self.of_part(at))
        return total

    def null(self, purpose: Purpose) -> Floats | None:
        """The mean over pairs in every draw of a null, (draws,); `None` if a part has no draws.

        Pairs with different common models are permuted separately, although they share platforms.
        Adding their sorted draws assumes the strongest dependence: the mean is right, and the upper
        quantiles and the p-value are conservative.
        """
        every = [self.drawn.sums(purpose, at, self.of_part(at)) for at in self.used]
        known = [np.sort(mine) for mine in every if mine is not None]
        if len(known) < len(every):
            return None
        total: Floats = np.sum(known, axis=0)
        return total


def mean_figures(
    measure: Measure, pairs: Sequence[Pair], clusters: npt.ArrayLike, seed: int
) -> Agreement:
    """Averages rho inside each cluster first, then over clusters.

    `clusters` has the name or number of each pair's two device models, so that a device model with
    many units or settings counts once.
    """
    return figures_of_mean(PairDraws(measure, pairs, seed), np.arange(len(pairs)), clusters)


def figures_of_mean(
    drawn: PairDraws, chosen: npt.NDArray[np.int64], clusters: npt.ArrayLike
) -> Agreement:
    """As `mean_figures`, over the pairs of the draws at the positions `chosen`."""
    every = np.zeros(drawn.rho.size, dtype=np.int64)
    for part in drawn.parts:
        every[part.where] = part.models.size
    n_models = every[chosen]
    least = least_in_mean(n_models)
    rho = np.where(n_models >= least, drawn.rho[chosen], np.nan)
    if np.isnan(rho).all():
        return Agreement(
            measure=drawn.measure.name,
            n_models=int(min(n_models, default=0)),
            averaged=AveragedPairs(
                most_models=int(max(n_models, default=0)), n_pairs=0, n_clusters=0
            ),
            reason="no pair of platforms has a rho",
        )
    weights = np.zeros(drawn.rho.size)
    weights[chosen], spread, n_clusters = cluster_weights(rho, clusters)
    used = tuple(at for at, part in enumerate(drawn.parts) if weights[part.where].any())
    sizes = [drawn.parts[at].models.size for at in used]
    models = np.unique(np.concatenate([drawn.parts[at].models for at in used]))
    mean = _Mean(drawn=drawn, weights=weights, used=used, models=models)
    low, high, n_out = None, None, int((n_models < least).sum())
    reason = (
        f"left out: {count_of(n_out, 'pair')} with fewer than {least} models" if n_out else None
    )
    if min(sizes) < MIN_MODELS_FOR_INTERVAL:
        few = count_of(min(sizes), "model")
        reason = f"no interval: {few} in a pair, at least {MIN_MODELS_FOR_INTERVAL} needed"
    else:
        # A mean of correlations of 1 may lie above it by rounding.
        low, high = np.clip(percentile_interval(mean.resampled()), -1.0, 1.0).tolist()
    figures = Agreement(
        measure=drawn.measure.name,
        n_models=min(sizes),
        averaged=AveragedPairs(
            most_models=max(sizes),
            n_pairs=int(np.isfinite(rho).sum()),
            n_clusters=n_clusters,
            std_over_pairs=spread,
        ),
        rho=float(without_rounding(np.asarray(np.nansum(weights[chosen] * rho)))),
        low=low,
        high=high,
        reason=reason,
    )
    return _with_nulls(figures, mean) if drawn.measure.has_latency else figures


def _with_nulls(figures: Agreement, mean: _Mean) -> Agreement:
    rho, null = figures.rho, mean.null(Purpose.NULL)
    if rho is None or null is None:
        return figures
    null_mean = float(np.mean(null))
    nulls = RhoNulls(
        p_value=float(null_p(rho, null)),
        null_mean=null_mean,
        null_p95=float(np.quantile(null, 0.95)),
        headroom=headroom(rho, null_mean),
    )
    lacking = why_no_residual_null(mean.drawn.measure, mean.models)
    if lacking is not None:
        reason = lacking if figures.reason is None else f"{figures.reason}; {lacking}"
        return replace(figures, nulls=nulls, reason=reason)
    residual = mean.null(Purpose.RESIDUAL_NULL)
    if residual is not None:
        residual_mean, residual_p = float(np.mean(residual)), float(mid_p(rho, residual))
        nulls = replace(nulls, residual_null_mean=residual_mean, residual_p=residual_p)
    return replace(figures, nulls=nulls)


def agreements(
    found: Compared, measure: Measure, seed: int
) -> tuple[list[Agreement], list[Agreement]]:
    """Of groups and of the pairs that they are made of, with the same draws for both.

    P-values of pairs are adjusted over all of them. Without listed pairs, because they are too
    many, each group has separate draws.
    """
    if not found.listed:
        return [group_agreement(group, measure, seed) for group in found.groups], []
    drawn = PairDraws(measure, found.pairs, seed)
    means = [
        _of_group(group, figures_of_mean(drawn, at, group.clusters))
        for group, at in zip(found.groups, positions_of(found.groups, found.pairs), strict=True)
    ]
    return means, _of_pairs(found, figures_of_pairs(drawn))


def group_agreement(group: PairGroup, measure: Measure, seed: int) -> Agreement:
    """The mean over the pairs of the group."""
    return _of_group(group, mean_figures(measure, group.pairs, group.clusters, seed))


def _of_group(group: PairGroup, figures: Agreement) -> Agreement:
    return replace(figures, level=group.level, source=group.source, target=group.target)


def mean_of_listed(
    session: Session, pairs: Sequence[Pair], clusters: Sequence[int]
) -> Agreement | None:
    """The mean rho of latency over some pairs of platforms, with the draws of table `transfer`.

    A pair may have the other direction; each may occur once. `None` if no pair is listed.
    """
    listed = compared(session, Axis.DEVICE).listed
    if not listed:
        return None
    position = {frozenset(pair): at for at, pair in enumerate(listed)}
    chosen = np.array([position[frozenset(pair)] for pair in pairs])
    return figures_of_mean(session.once(_latency_draws), chosen, clusters)


def _latency_draws(session: Session) -> PairDraws:
    found = compared(session, Axis.DEVICE)
    return PairDraws(found.conditions.measures[0], found.listed, session.selection.seed)


def positions_of(groups: Iterable[PairGroup], pairs: Sequence[Pair]) -> list[npt.NDArray[np.int64]]:
    """Where each group's pairs are among `pairs`, (n_pairs of the group,) each."""
    position = {pair: at for at, pair in enumerate(pairs)}
    return [np.array([position[pair] for pair in group.pairs]) for group in groups]


def _of_pairs(found: Compared, figures: Sequence[Agreement]) -> list[Agreement]:
    """The figures with the names of their conditions, and p-values adjusted over them."""
    rule, facts = found.rule, found.conditions.columns.to_dicts()
    adjusted = adjust_p([figure.nulls.p_value for figure in figures])
    residual = adjust_p([figure.nulls.residual_p for figure in figures])
    level, name = Level.PAIR, "platform_key"
    if rule.is_inside_platform:
        level, name = Level.PLATFORM, rule.fact
    return [
        replace(
            figure,
            level=level,
            source=facts[i][name],
            target=facts[j][name],
            platform_key=facts[i]["platform_key"] if rule.is_inside_platform else None,
            nulls=replace(figure.nulls, p_adjusted=adjusted[at], residual_p_adjusted=residual[at]),
            unlike=unlike_facts(facts[i], facts[j]),
        )
        for at, (figure, (i, j)) in enumerate(zip(figures, found.pairs, strict=True))
    ]

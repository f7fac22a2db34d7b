"""Predicts latency on another platform from the ratio to one reference model."""

import itertools
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    cluster_means,
    known_mean,
    known_median,
    least_in_mean,
    percentile_interval,
    resample_counts,
)
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, require_finite
from fleetrank.analysis.panel.conditions import (
    MAX_LISTED_PAIRS,
    Between,
    Level,
    Pair,
    PairCounts,
    PairGroup,
    chunks,
    directed_pairs,
    tier_groups,
    unlike_facts,
    unlisted,
)
from fleetrank.analysis.panel.draws import blocks, draws_for
from fleetrank.analysis.panel.panel import Panel, measures
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.errors import count_of

# How well the ratio to one reference model predicts latency on another platform, on arrays.

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


MEDIAN = "median over references"
_BETTER = "To predict a device, use `fleetrank predict`: smaller errors, and an interval for each."
_UNDEFINED = f"fewer than {MIN_MODELS} models in common, or all equal on the target"
_MAX_RESAMPLED = 100_000
"""Medians are resampled for up to this many models x pairs: 1,000 draws then take seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceR2(Between):
    """r2 with one reference model, or the median over all of them; undefined has its `reason`.

    Attributes:
        level: `TIER` or `PAIR`; source and target name two of these.
        reference: the model, or `MEDIAN`.
        n_models: in common; of tiers, the fewest of any pair.
        most_models: the most of any pair; `None` for a single pair.
        counts: pairs with an r2 of this reference; `None` for a single pair.
        low, high: 95 % percentile bootstrap over models, of the median only.
        median_r2: over clusters, of the median only; `None` for a single pair.
        share_above_half: of clusters; `None` for a single pair.
        unlike: facts that differ between the two platforms of a pair.
    """

    reference: str = MEDIAN
    n_models: int
    most_models: int | None = None
    counts: PairCounts | None = None
    r2: float
    low: float | None = None
    high: float | None = None
    median_r2: float | None = None
    share_above_half: float | None = None
    unlike: str | None = None
    reason: str | None = None


def ratio_transfer_table(session: Session) -> Table:
    """r2 by reference model and their median, from tier to tier and for every directed pair.

    Raises:
        NoDataError: fewer than two platforms match.
    """
    panel, seed = session.panel, session.selection.seed
    pairs = directed_pairs(panel, session.selection)
    logs = measures(panel)[0].values
    listed = pairs if len(pairs) <= MAX_LISTED_PAIRS else []
    has_references = len(pairs) * len(panel.models) <= MAX_LISTED_PAIRS
    groups = tier_groups(panel, pairs, is_directed=True)
    of_groups = [one for group in groups for one in _of_group(panel, logs, group, seed)]
    of_pairs = _of_pairs(panel, logs, listed, seed, has_references=has_references)
    hidden: tuple[str, ...] = ()
    if len(pairs) > MAX_LISTED_PAIRS:
        hidden = (unlisted(pairs, session),)
    elif not has_references:
        hidden = (
            "Pairs: single references are not listed; choose fewer pairs with `source=` or "
            "`target=`.",
        )
    return Table.of(
        ReferenceR2,
        (*of_groups, *of_pairs),
        title="Kernel ratio transfer",
        notes=(*panel.notes, *hidden, _BETTER),
        explanation=explained(
            "predict/ratios",
            {
                "half": HALF,
                "min_interval": MIN_MODELS_FOR_INTERVAL,
                "seed": seed,
                "draws": draws_for(pairs).bootstrap,
            },
        ),
    )


def _of_group(panel: Panel, logs: Floats, group: PairGroup, seed: int) -> Iterator[ReferenceR2]:
    counted = with_enough_models(logs, group)
    found = group_r2(logs, counted)
    for at, reference in enumerate([*panel.models, MEDIAN]):
        r2 = float(found.r2[at])
        one = ReferenceR2(
            level=group.level,
            source=group.source,
            target=group.target,
            reference=reference,
            n_models=found.fewest,
            most_models=found.most,
            counts=PairCounts(n_pairs=int(found.n_pairs[at]), n_clusters=int(found.n_clusters[at])),
            r2=r2,
            share_above_half=float(found.share_above_half[at]),
            reason=_UNDEFINED if math.isnan(r2) else None,
        )
        if reference == MEDIAN:
            one = replace(one, median_r2=found.median)
            one = _with_interval(one, _group_draws(logs, counted, found.fewest, seed), 0)
            one = _with_left_out(one, len(group.pairs) - len(counted.pairs))
        yield one


def _group_draws(logs: Floats, group: PairGroup, fewest: int, seed: int) -> Floats | None:
    """Means over clusters of the median over references, (draws, 1)."""
    if fewest < MIN_MODELS_FOR_INTERVAL:
        return None
    draws = _resampled(logs, group.pairs, seed)
    if draws is None:
        return None
    return known_mean(cluster_means(draws, group.starts), 1)[:, None]


def _of_pairs(
    panel: Panel, logs: Floats, pairs: Sequence[Pair], seed: int, *, has_references: bool
) -> Iterator[ReferenceR2]:
    r2, n_common = pair_r2(logs, pairs)
    medians = known_median(r2, 0)
    draws = _resampled(logs, pairs, seed)
    facts = panel.platforms.to_dicts()
    for at, (i, j) in enumerate(pairs):
        median = float(medians[at])
        over_references = ReferenceR2(
            level=Level.PAIR,
            source=panel.keys[i],
            target=panel.keys[j],
            n_models=int(n_common[at]),
            r2=median,
            unlike=unlike_facts(facts[i], facts[j]),
            reason=_UNDEFINED if math.isnan(median) else None,
        )
        references = np.flatnonzero(np.isfinite(r2[:, at])) if has_references else ()
        for row in references:
            yield replace(
                over_references, reference=panel.models[row], r2=float(r2[row, at]), reason=None
            )
        yield _with_interval(over_references, draws, at)


def _resampled(logs: Floats, pairs: Sequence[Pair], seed: int) -> Floats | None:
    """Draws (draws, n_pairs) from one stream, so that a figure does not depend on other pairs."""
    if logs.shape[0] * len(pairs) > _MAX_RESAMPLED:
        return None
    rng = np.random.default_rng([seed, zlib.crc32(b"ratio-transfer")])
    return median_draws(logs, pairs, draws_for(pairs).bootstrap, rng)


def _with_interval(one: ReferenceR2, draws: Floats | None, at: int) -> ReferenceR2:
    """Adds the interval from column `at` of the draws, or the reason if it is missing."""
    if math.isnan(one.r2):
        return one
    if one.n_models < MIN_MODELS_FOR_INTERVAL:
        few = count_of(one.n_models, "model")
        return replace(one, reason=f"no interval: {few}, at least {MIN_MODELS_FOR_INTERVAL} needed")
    if draws is None:
        many = "too many pairs to resample, choose fewer with `source=` or `target=`"
        return replace(one, reason=f"no interval: {many}")
    low, high = percentile_interval(draws[:, at])
    return replace(one, low=float(low), high=float(high))


def _with_left_out(one: ReferenceR2, n_pairs: int) -> ReferenceR2:
    if n_pairs == 0 or one.reason is not None:
        return one
    pairs = count_of(n_pairs, "pair")
    return replace(
        one, reason=f"left out: {pairs} with fewer than {MIN_MODELS_FOR_INTERVAL} models"
    )

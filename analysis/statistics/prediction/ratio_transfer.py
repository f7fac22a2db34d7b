"""Predicts latency on another platform from the ratio to one reference model."""

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleetrank.analysis.arrays.bootstrap import MIN_MODELS_FOR_INTERVAL, percentile_interval
from fleetrank.analysis.arrays.known_means import cluster_means, known_mean, known_median
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats
from fleetrank.analysis.panel.conditions import (
    MAX_LISTED_PAIRS,
    Between,
    Level,
    Pair,
    PairCounts,
    PairGroup,
    directed_pairs,
    tier_groups,
    unlike_facts,
    unlisted,
)
from fleetrank.analysis.panel.draws import draws_for
from fleetrank.analysis.panel.panel import Panel, measures
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.prediction.reference_r2 import (
    HALF,
    group_r2,
    median_draws,
    pair_r2,
    with_enough_models,
)
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.wording import count_of

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

"""Predicts latency on another platform from the ratio to one reference model."""

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    percentile_interval,
    resample_counts,
)
from fleetrank.analysis.arrays.known_means import cluster_means, known_mean, known_median
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, require_finite
from fleetrank.analysis.panel.pair_groups import (
    TIER_NOTE,
    PairGroup,
    chunks,
    tier_groups,
    unlike_facts,
)
from fleetrank.analysis.panel.pairs import Pair, blocks, draws_for
from fleetrank.analysis.panel.panel import Panel, measures
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS, directed_pairs, unlisted
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.wording import count_of

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
        n_pairs: with an r2.
        fewest: fewest common models of such a pair; 0 without any.
    """

    r2: Floats
    share_above_half: Floats
    n_clusters: npt.NDArray[np.int64]
    median: float
    n_pairs: int
    fewest: int


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


def group_r2(logs: Floats, group: PairGroup) -> GroupR2:
    """Averages r2 inside each cluster first, then over clusters."""
    sums, counts, above = np.zeros((3, logs.shape[0] + 1))
    medians, common = [], []
    for some, starts in chunks(group, logs.shape[0]):
        r2, n_common = pair_r2(logs, some)
        by_cluster = cluster_means(np.vstack([r2, known_median(r2, 0)]), starts)
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
        n_pairs=used.size,
        fewest=int(used.min()) if used.size else 0,
    )


def _centred(values: Floats, weight: Floats) -> Floats:
    centred: Floats = values - (weight * values).sum(axis=0) / weight.sum()
    return centred


MEDIAN = "median over references"
_UNDEFINED = f"fewer than {MIN_MODELS} models in common, or all equal on the target"
_MAX_RESAMPLED = 100_000
"""Medians are resampled for up to this many models x pairs: 1,000 draws then take seconds."""

_SCHEMA = {
    "level": pl.String,
    "source": pl.String,
    "target": pl.String,
    "reference": pl.String,
    "n_models": pl.Int64,
    "n_pairs": pl.Int64,
    "n_clusters": pl.Int64,
    "r2": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "median_r2": pl.Float64,
    "share_above_half": pl.Float64,
    "unlike": pl.String,
    "reason": pl.String,
}
_MEANING = (
    "Predicted: latency(m, target) = latency(m, source) x latency(reference, target) / "
    "latency(reference, source).",
    "r2: 1 - SS_res / SS_tot of log latency, without a fit to the prediction. The reference "
    "itself is not scored. 1 is perfect; below 0 is worse than predicting the mean of the "
    "scored models for all; r2 has no lower limit. A squared Pearson correlation would be the "
    "same for every reference: a reference shifts all predictions by one constant, which a "
    "correlation ignores.",
    "Tiers: r2 is the mean over clusters; one bad pair can make it very low. median_r2 is the "
    f"median over clusters; share_above_half is the share of clusters with r2 of {HALF:g} or "
    "more.",
    "low to high: 95 % percentile bootstrap over models of the median over references, from "
    f"{MIN_MODELS_FOR_INTERVAL} models on.",
)

Row = dict[str, object]


def ratio_transfer_table(session: Session) -> Table:
    """r2 by reference model and their median, from tier to tier and for every directed pair."""
    panel, selection = session.panel, session.selection
    pairs = directed_pairs(panel, selection)
    logs = measures(panel)[0].values
    rows = [
        row
        for group in tier_groups(panel, pairs, is_directed=True)
        for row in _group_rows(panel, logs, group, selection.seed)
    ]
    hidden: tuple[str, ...] = ()
    if len(pairs) > MAX_LISTED_PAIRS:
        hidden = (unlisted(pairs),)
    else:
        rows += _pair_rows(panel, logs, pairs, selection.seed)
    if not hidden and not _lists_references(panel, pairs):
        hidden = (
            "Pairs: single references are not listed; choose fewer pairs with --source or "
            "--target.",
        )
    drawn = f"Seed {selection.seed}: {draws_for(pairs).bootstrap} resamples."
    notes = (*panel.notes, *hidden, TIER_NOTE, *_MEANING, drawn)
    return Table(
        title="Kernel ratio transfer", frame=pl.DataFrame(rows, schema=_SCHEMA), notes=notes
    )


def _lists_references(panel: Panel, pairs: Sequence[Pair]) -> bool:
    return len(pairs) * len(panel.models) <= MAX_LISTED_PAIRS


def _group_rows(panel: Panel, logs: Floats, group: PairGroup, seed: int) -> Iterator[Row]:
    found = group_r2(logs, group)
    facts: Row = {"level": "tier", "source": group.source, "target": group.target}
    behind: Row = {"n_models": found.fewest, "n_pairs": found.n_pairs}
    for at, reference in enumerate([*panel.models, MEDIAN]):
        row = facts | behind | {"reference": reference, "n_clusters": int(found.n_clusters[at])}
        row |= {"r2": _known(found.r2[at]), "share_above_half": _known(found.share_above_half[at])}
        if reference != MEDIAN:
            yield row | {"reason": _UNDEFINED if row["r2"] is None else None}
            continue
        draws = (
            _resampled(logs, group.pairs, seed) if found.fewest >= MIN_MODELS_FOR_INTERVAL else None
        )
        if draws is not None:
            draws = known_mean(cluster_means(draws, group.starts), 1)[:, None]
        interval = _interval(draws, 0, found.fewest)
        yield row | {"median_r2": _known(found.median)} | _told(row["r2"], interval)


def _pair_rows(panel: Panel, logs: Floats, pairs: Sequence[Pair], seed: int) -> Iterator[Row]:
    r2, n_common = pair_r2(logs, pairs)
    medians = known_median(r2, 0)
    draws = _resampled(logs, pairs, seed)
    lists_references = _lists_references(panel, pairs)
    platforms = panel.platforms.to_dicts()
    for at, (i, j) in enumerate(pairs):
        facts: Row = {"level": "pair", "source": panel.keys[i], "target": panel.keys[j]}
        facts["n_models"] = int(n_common[at])
        facts["unlike"] = unlike_facts(platforms[i], platforms[j])
        if lists_references:
            for row in np.flatnonzero(np.isfinite(r2[:, at])):
                yield facts | {"reference": panel.models[row], "r2": float(r2[row, at])}
        median = _known(medians[at])
        interval = _interval(draws, at, int(n_common[at]))
        yield facts | {"reference": MEDIAN, "r2": median} | _told(median, interval)


def _resampled(logs: Floats, pairs: Sequence[Pair], seed: int) -> Floats | None:
    """Draws (draws, n_pairs) from one stream, so that a figure does not depend on other pairs."""
    if logs.shape[0] * len(pairs) > _MAX_RESAMPLED:
        return None
    rng = np.random.default_rng([seed, zlib.crc32(b"ratio-transfer")])
    return median_draws(logs, pairs, draws_for(pairs).bootstrap, rng)


def _interval(draws: Floats | None, at: int, n_models: int) -> tuple[float, float] | str:
    """Both ends of the interval, or the reason if it is missing."""
    if n_models < MIN_MODELS_FOR_INTERVAL:
        few = count_of(n_models, "model")
        return f"no interval: {few}, at least {MIN_MODELS_FOR_INTERVAL} needed"
    if draws is None:
        return "no interval: too many pairs to resample, choose fewer with --source or --target"
    low, high = percentile_interval(draws[:, at])
    return float(low), float(high)


def _told(r2: object, interval: tuple[float, float] | str) -> Row:
    if r2 is None:
        return {"reason": _UNDEFINED}
    if isinstance(interval, str):
        return {"reason": interval}
    return {"low": interval[0], "high": interval[1]}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)

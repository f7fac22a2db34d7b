"""Does the ratio to one reference model carry latency over to another platform?"""

import math
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.bootstrap import MIN_MODELS_FOR_INTERVAL, percentile_interval
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats
from fleetrank.analysis.counting import count_of
from fleetrank.analysis.panel.directions import Group, cluster_means, known_mean, known_median
from fleetrank.analysis.panel.pair_groups import unlike_facts
from fleetrank.analysis.panel.pairs import Pair, draws_for
from fleetrank.analysis.panel.panel import Panel, make_panel, measures
from fleetrank.analysis.statistics.prediction.ratio_transfer import (
    HALF,
    group_r2,
    median_draws,
    pair_r2,
)
from fleetrank.analysis.statistics.transfer.directed import TIER_NOTE, directed_pairs, tier_groups
from fleetrank.analysis.statistics.transfer.transfer_table import MAX_LISTED_PAIRS, unlisted
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.table import Table

MEDIAN = "median over references"
_UNDEFINED = f"fewer than {MIN_MODELS} models in common, or all equal on the target"
_MAX_RESAMPLED = 100_000
"""Models x pairs up to which medians are resampled: a thousand draws take seconds."""

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
    "r2: 1 - SS_res / SS_tot of log latency, the prediction taken as it stands; the reference "
    "itself is not scored. 1 is perfect, below 0 is worse than foretelling the scored models' "
    "mean, and there is no lower limit. A squared Pearson correlation would be the same for every "
    "reference: a reference shifts all predictions alike, which it cannot see.",
    "Tiers: r2 is the mean over clusters, which one bad pair can pull far down; median_r2 is over "
    f"clusters; share_above_half: of clusters with r2 of {HALF:g} or more.",
    "low to high: 95 % percentile bootstrap over models of the median over references, from "
    f"{MIN_MODELS_FOR_INTERVAL} models on.",
)

Row = dict[str, object]


def ratio_transfer_table(frame: pl.LazyFrame, selection: Selection) -> Table:
    """r2 by reference model and their median, from tier to tier and for every directed pair."""
    panel = make_panel(frame, selection)
    pairs = directed_pairs(panel, selection)
    logs = measures(panel)[0].values
    between, groups = tier_groups(panel, pairs)
    rows = [
        row for group in groups for row in _group_rows(panel, logs, between, group, selection.seed)
    ]
    hidden: tuple[str, ...] = ()
    if len(pairs) > MAX_LISTED_PAIRS:
        hidden = (unlisted(pairs),)
    else:
        rows += _pair_rows(panel, logs, pairs, selection.seed)
    if not hidden and not _lists_references(panel, pairs):
        hidden = ("Pairs: single references are not listed; narrow with --source or --target.",)
    drawn = f"Seed {selection.seed}: {draws_for(pairs).bootstrap} resamples."
    notes = (*panel.notes, *hidden, TIER_NOTE, *_MEANING, drawn)
    return Table(
        title="Kernel ratio transfer", frame=pl.DataFrame(rows, schema=_SCHEMA), notes=notes
    )


def _lists_references(panel: Panel, pairs: Sequence[Pair]) -> bool:
    return len(pairs) * len(panel.models) <= MAX_LISTED_PAIRS


def _group_rows(
    panel: Panel, logs: Floats, pairs: Sequence[Pair], group: Group, seed: int
) -> Iterator[Row]:
    found = group_r2(logs, pairs, group)
    facts: Row = {"level": "tier", "source": group.source, "target": group.target}
    behind: Row = {"n_models": found.fewest, "n_pairs": found.n_pairs}
    for at, reference in enumerate([*panel.models, MEDIAN]):
        row = facts | behind | {"reference": reference, "n_clusters": int(found.n_clusters[at])}
        row |= {"r2": _known(found.r2[at]), "share_above_half": _known(found.share_above_half[at])}
        if reference != MEDIAN:
            yield row | {"reason": _UNDEFINED if row["r2"] is None else None}
            continue
        mine = [pairs[position] for position in group.at]
        draws = _resampled(logs, mine, seed) if found.fewest >= MIN_MODELS_FOR_INTERVAL else None
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
    """Draws (draws, n_pairs) from one stream, so that no figure depends on the pairs beside it."""
    if logs.shape[0] * len(pairs) > _MAX_RESAMPLED:
        return None
    rng = np.random.default_rng([seed, zlib.crc32(b"ratio-transfer")])
    return median_draws(logs, pairs, draws_for(pairs).bootstrap, rng)


def _interval(draws: Floats | None, at: int, n_models: int) -> tuple[float, float] | str:
    """Both ends, or why there are none."""
    if n_models < MIN_MODELS_FOR_INTERVAL:
        few = count_of(n_models, "model")
        return f"no interval: {few}, at least {MIN_MODELS_FOR_INTERVAL} needed"
    if draws is None:
        return "no interval: too many pairs to resample, narrow with --source or --target"
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

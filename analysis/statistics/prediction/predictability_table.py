"""How well latency on one platform predicts latency on another, by family of models."""

import math
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.bootstrap import MIN_MODELS_FOR_INTERVAL
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats
from fleetrank.analysis.arrays.sample_size import few_models_note
from fleetrank.analysis.panel.pair_groups import TIER_NOTE, PairGroup, tier_groups, unlike_facts
from fleetrank.analysis.panel.pairs import Pair, draws_for
from fleetrank.analysis.panel.panel import Panel, measures
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS, directed_pairs, unlisted
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.prediction.family_errors import (
    ALL,
    Families,
    FamilyErrors,
    error_intervals,
    family_masks,
    group_errors,
    pair_errors,
)
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.wording import count_of

_SCHEMA = {
    "level": pl.String,
    "source": pl.String,
    "target": pl.String,
    "family": pl.String,
    "n_models": pl.Int64,
    "n_fitted": pl.Int64,
    "n_pairs": pl.Int64,
    "n_clusters": pl.Int64,
    "mean_error_percent": pl.Float64,
    "low_percent": pl.Float64,
    "high_percent": pl.Float64,
    "median_error_percent": pl.Float64,
    "rho": pl.Float64,
    "mean_abs_shift": pl.Float64,
    "unlike": pl.String,
    "reason": pl.String,
}
_MEANING = (
    "Error: |predicted / measured - 1| of a model's latency on the target, predicted from the "
    "source by a straight line through the logarithms of the other common models (least "
    f"squares, without the model itself). A pair needs at least {MIN_MODELS} common models; "
    "n_fitted is the smallest number of any pair. One line is fitted to all families together.",
    "Family 'all': mean and median over families, so each family counts once. A pair's figures "
    "are over models. A tier's mean is over a family's models, each averaged over clusters; its "
    "median is over clusters.",
    "low to high (tiers only): 95 % percentile bootstrap of the mean over models, from "
    f"{MIN_MODELS_FOR_INTERVAL} models on; fits are not repeated.",
    f"rho: Spearman's rho inside the family, from {MIN_MODELS} of its models on. mean_abs_shift: "
    "average rank change of a model among all common models. Results of a family with few "
    "models may not hold for other models of the family.",
)

Row = dict[str, object]


def predictability_table(session: Session) -> Table:
    """Leave-one-out error by family, from tier to tier and for every directed pair."""
    panel, selection = session.panel, session.selection
    pairs = directed_pairs(panel, selection)
    logs = measures(panel)[0].values
    families = family_masks(panel.families)
    groups = tier_groups(panel, pairs, is_directed=True)
    between = [pair for group in groups for pair in group.pairs]
    rows = [
        row
        for group in groups
        for row in _group_rows(logs, between, group, families, selection.seed)
    ]
    is_listed = len(pairs) <= MAX_LISTED_PAIRS
    if is_listed:
        rows += _pair_rows(panel, logs, pairs, families)
    hidden = () if is_listed else (unlisted(pairs),)
    drawn = f"Seed {selection.seed}: {draws_for(pairs).bootstrap} resamples."
    few = few_models_note(len(panel.models))
    notes = (*panel.notes, *hidden, TIER_NOTE, *_MEANING, drawn, *few)
    return Table(
        title="Predictability by family", frame=pl.DataFrame(rows, schema=_SCHEMA), notes=notes
    )


def _group_rows(
    logs: Floats, pairs: Sequence[Pair], group: PairGroup, families: Families, seed: int
) -> Iterator[Row]:
    found = group_errors(logs, group, families)
    names = f"predictability/{group.source}/{group.target}"
    rng = np.random.default_rng([seed, zlib.crc32(names.encode())])
    intervals = error_intervals(found.by_model, families, draws_for(pairs).bootstrap, rng)
    facts: Row = {"level": "tier", "source": group.source, "target": group.target}
    behind = {"n_pairs": found.n_pairs, "n_clusters": found.n_clusters}
    for number, (family, interval) in enumerate(zip([*families, ALL], intervals, strict=True)):
        low, high = (100 * bound for bound in interval) if interval else (None, None)
        bounds = {"family": family, "low_percent": low, "high_percent": high}
        row = facts | behind | bounds | _figures(_of(found.figures, number), found.fewest)
        if row["reason"] is None and low is None:
            row["reason"] = f"no interval below {MIN_MODELS_FOR_INTERVAL} models"
        yield row


def _pair_rows(
    panel: Panel, logs: Floats, pairs: Sequence[Pair], families: Families
) -> Iterator[Row]:
    platforms = panel.platforms.to_dicts()
    found, n_common = pair_errors(logs, pairs, families)
    for at, (i, j) in enumerate(pairs):
        facts: Row = {"level": "pair", "source": panel.keys[i], "target": panel.keys[j]}
        facts["unlike"] = unlike_facts(platforms[i], platforms[j])
        for number, family in enumerate([*families, ALL]):
            figures = _figures(_of(found, (number, at)), int(n_common[at]))
            yield facts | {"family": family} | figures


def _of(found: FamilyErrors, at: int | tuple[int, int]) -> tuple[float, ...]:
    parts = (found.n_models, found.mean, found.median, found.shift, found.rho)
    return tuple(float(part[at]) for part in parts)


def _figures(figures: tuple[float, ...], n_fitted: int) -> Row:
    n_models = int(figures[0])
    mean, median, shift, rho = (None if math.isnan(one) else one for one in figures[1:])
    return {
        "n_models": n_models,
        "n_fitted": n_fitted,
        "mean_error_percent": None if mean is None else 100 * mean,
        "median_error_percent": None if median is None else 100 * median,
        "mean_abs_shift": shift,
        "rho": rho,
        "reason": _reason(n_models, n_fitted, mean, rho),
    }


def _reason(n_models: int, n_fitted: int, mean: float | None, rho: float | None) -> str | None:
    if n_fitted < MIN_MODELS:
        return f"{count_of(n_fitted, 'model')} in common, at least {MIN_MODELS} needed"
    if mean is None:
        return "the other models are all equal on the source, or the family has no common model"
    if n_models < MIN_MODELS:
        return f"no rho: too few, {n_models} of the {MIN_MODELS} models needed"
    return None if rho is not None else "no rho: too few in any pair, or all equal on one side"

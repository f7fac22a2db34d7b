"""Is FRM's correlation caused by FLOPs, which are equal on every device, or by latency?"""

import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.frm import EQUAL_WEIGHTS, Weights
from fleetrank.analysis.arrays.known_means import cluster_weights
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, require_finite
from fleetrank.analysis.arrays.sample_size import few_models_note
from fleetrank.analysis.panel.pair_groups import Row, group_rows, pair_rows, tier_groups
from fleetrank.analysis.panel.pairs import Pair, blocks, draws_for
from fleetrank.analysis.panel.panel import Measure, Panel, components, incomplete_notes
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS, select_pairs, unlisted
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.ranks.frm_table import frm_weights, weights_note
from fleetrank.analysis.tables.table import Table


def variance_shares(logs: Floats) -> Floats:
    """What each summand contributes to the variance of the sum over models, per platform.

    From (n_components, n_models, n_platforms), logarithms of the components, to (n_components,
    n_platforms): cov(component, sum) / var(sum). Shares sum to 1; one below 0 belongs to a
    component that decreases when the sum increases; others can then exceed 1. NaN where the sum is
    equal for all models. Source: covariance decomposition of a variance, as Fields 2003 applies it
    to logarithms.
    """
    require_finite(logs)
    total = logs.sum(axis=0)
    centred = total - total.mean(axis=0)
    variance = (centred**2).sum(axis=0)
    variance = np.where(np.ptp(total, axis=0) > _dust(logs), variance, np.nan)
    shares: Floats = (logs * centred).sum(axis=1) / variance
    return shares


def _dust(logs: Floats) -> Floats:
    """The largest range that rounding can leave in equal sums of such logarithms."""
    largest: Floats = 1e-12 * np.maximum(np.abs(logs).max(axis=(0, 1)), 1.0)
    return largest


def component_logs(panel: Panel, weights: Weights = EQUAL_WEIGHTS) -> Floats:
    """Weighted logarithms of the components used, (n_components, n_models, n_platforms).

    NaN in all where one is missing or not above 0, so that all parts have the same models.
    """
    exponents = asdict(weights)
    values = _complete(panel, weights)
    return np.stack([exponents[name] * np.log(values[name]) for name in weights.used])


def _complete(panel: Panel, weights: Weights) -> dict[str, Floats]:
    """The components used where all of them are known, NaN elsewhere."""
    values = {name: part for name, part in components(panel).items() if name in weights.used}
    known = np.isfinite(np.stack(list(values.values()))).all(axis=0)
    return {name: np.where(known, part, np.nan) for name, part in values.items()}


def component_measures(panel: Panel, weights: Weights = EQUAL_WEIGHTS) -> tuple[Measure, ...]:
    """FRM and its parts, all over the models that have every component used on a platform.

    Latency first, then latency given FLOPs, FRM, FRM without each component, and the other
    components alone.
    """
    values = _complete(panel, weights)
    latency = values.pop("latency")
    flops = np.where(panel.flops > 0, panel.flops, 1.0)
    alone = Measure(name="latency", rest=np.ones_like(latency), latency=latency)
    found = [alone]
    if "flops" in values:
        # No model without FLOPs is in any block; a finite number keeps the ranking code plain.
        found.append(replace(alone, name="latency_given_flops", given=flops))
    found.append(_weighted("frm", values, latency, weights))
    for left_out in values:
        rest = {name: part for name, part in values.items() if name != left_out}
        found.append(_weighted(f"frm_without_{left_out}", rest, latency, weights))
    nothing = np.where(np.isfinite(latency), 1.0, np.nan)
    others = {"frm_without_latency": values, **{name: {name: values[name]} for name in values}}
    found += [
        replace(_weighted(name, parts, nothing, weights), has_latency=False)
        for name, parts in others.items()
        if parts
    ]
    return tuple(found)


def _weighted(name: str, parts: dict[str, Floats], latency: Floats, weights: Weights) -> Measure:
    """The product of the parts and latency, each to the power of its weight."""
    exponents = asdict(weights)
    rest = np.ones_like(latency)
    for part, values in parts.items():
        rest = rest * values ** exponents[part]
    return Measure(name=name, rest=rest, latency=latency**weights.latency)


def pair_shares(panel: Panel, pairs: Sequence[Pair], weights: Weights = EQUAL_WEIGHTS) -> Floats:
    """`variance_shares` of every pair, (n_components, n_pairs), over its common models.

    The mean of its two platforms, components as `weights.used` names them. NaN with fewer than 5
    common models, or where FRM is equal for all on one side.
    """
    logs = component_logs(panel, weights)
    shares = np.full((logs.shape[0], len(pairs)), np.nan)
    for block in blocks(np.isfinite(logs[0]), pairs):
        if block.models.size < MIN_MODELS:
            continue
        mine = variance_shares(logs[:, block.models][:, :, block.columns])
        shares[:, block.where] = (mine[:, block.source] + mine[:, block.target]) / 2
    return shares


def mean_shares(shares: Floats, clusters: npt.ArrayLike) -> Floats:
    """Shares (n_components, n_pairs) averaged inside each cluster first; NaN without any pair."""
    if np.isnan(shares[0]).all():
        return np.full(shares.shape[0], np.nan)
    weights, _, _ = cluster_weights(shares[0], clusters)
    means: Floats = (np.nan_to_num(shares) * weights).sum(axis=1)
    return means


_SCHEMA = {
    "level": pl.String,
    "source": pl.String,
    "target": pl.String,
    "measure": pl.String,
    "n_models": pl.Int64,
    "n_pairs": pl.Int64,
    "n_clusters": pl.Int64,
    "rho": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "null_mean": pl.Float64,
    "null_p95": pl.Float64,
    "headroom": pl.Float64,
    "p_value": pl.Float64,
    "p_adjusted": pl.Float64,
    "variance_share": pl.Float64,
    "unlike": pl.String,
    "reason": pl.String,
}
_MAY_BE_CHANCE = 0.05
"""Above this one-sided p, permuted latencies can give FRM's rho too."""
_WITHOUT_LATENCY = ("frm_without_latency", "flops", "memory")

_MEANING = (
    "An FRM correlation can be high even if latency does not transfer at all: FLOPs are one of "
    "its three parts and equal on every platform, and memory depends more on the model than on "
    "the device. Always compare FRM's rho with its null.",
    "Every measure uses the models with FLOPs, latency and memory on both sides, so latency's "
    "rho can differ from table `transfer`, which uses more models.",
    "null_mean, null_p95: rho with latencies permuted over the models, independently on every "
    "platform, the rest kept. headroom = (rho - null_mean) / (1 - null_mean); at 0 or below, "
    "latency adds no agreement. Measures without latency have no null.",
    "frm_without_latency is FLOPs x memory: FRM without any latency measurement. flops is 1 by "
    "construction. latency_given_flops is Spearman's partial rho.",
    "variance_share: covariance of the component's logarithm with the logarithm of FLOPs x "
    "latency x memory, over the variance of the latter, mean of both platforms; the three sum "
    "to 1. Below 0 a component decreases when the product increases and reduces its variance; "
    "other shares can then exceed 1.",
    "low to high: 95 % percentile bootstrap over models, jointly over all pairs of a tier row, "
    "from 9 models on. p_value: latency between two platforms two-sided by permutation, otherwise "
    "one-sided against the null; p_adjusted: Benjamini-Hochberg over the listed pairs of a "
    "measure.",
    "Tier rows: platforms of different devices at equal batch; mean inside a pair of device "
    "models (a cluster) first, then over clusters; if pairs share different models, null_p95 "
    "and p_value are upper bounds.",
)


def decomposition_table(session: Session) -> Table:
    """FRM with its null, its parts, and the variance of each part; tiers first, then pairs."""
    panel, selection = session.panel, session.selection
    pairs = select_pairs(panel, selection)
    is_listed = len(pairs) <= MAX_LISTED_PAIRS
    weights = frm_weights(selection)
    rows = _tier_rows(panel, pairs, weights, selection.seed)
    if is_listed:
        rows += _pair_rows(panel, pairs, weights, selection.seed)
    draws = draws_for(pairs)
    notes = (
        *panel.notes,
        *incomplete_notes(panel, weights.used),
        *weights_note(weights),
        *(() if is_listed else (unlisted(pairs),)),
        *_finding(rows),
        *_MEANING,
        f"Seed {selection.seed}: {draws.bootstrap} resamples, {draws.permutation} permutations, "
        f"{draws.null} draws of the null.",
        *few_models_note(len(panel.models)),
    )
    return Table(
        title="Decomposition of FRM's correlation",
        frame=pl.DataFrame(rows, schema=_SCHEMA),
        notes=notes,
    )


def _tier_rows(panel: Panel, pairs: Sequence[Pair], weights: Weights, seed: int) -> list[Row]:
    rows: list[Row] = []
    found = component_measures(panel, weights)
    for group in tier_groups(panel, pairs):
        means = mean_shares(pair_shares(panel, group.pairs, weights), group.clusters)
        share_of = dict(zip(weights.used, means.tolist(), strict=True))
        rows += [_with_share(row, share_of) for row in group_rows(group, found, seed)]
    return rows


def _pair_rows(panel: Panel, pairs: Sequence[Pair], weights: Weights, seed: int) -> list[Row]:
    """Sorts all measures of a pair next to each other."""
    shares = pair_shares(panel, pairs, weights).T.tolist()
    by_measure = [pair_rows(panel, one, pairs, seed) for one in component_measures(panel, weights)]
    return [
        _with_share(row, dict(zip(weights.used, shares[number], strict=True)))
        for number, rows in enumerate(zip(*by_measure, strict=True))
        for row in rows
    ]


def _with_share(row: Row, shares: dict[str, float]) -> Row:
    """The row's columns that are shown, its share of variance, and why a figure is missing."""
    shown = {name: value for name, value in row.items() if name in _SCHEMA}
    reasons = [str(row["reason"])] if row["reason"] is not None else []
    if row["measure"] in _WITHOUT_LATENCY and row["rho"] is not None:
        reasons.append("no null: the measure has no latency to permute")
    if row["null_mean"] is not None and row["headroom"] is None:
        reasons.append("no headroom: the null is 1")
    if row["measure"] in shares:
        share = shares[str(row["measure"])]
        shown["variance_share"] = None if math.isnan(share) else share
        if math.isnan(share) and row["rho"] is not None:
            reasons.append("no share: FRM is equal for all models")
    return shown | {"reason": "; ".join(reasons) or None}


def _finding(rows: Sequence[Row]) -> tuple[str, ...]:
    """A note on how often permuted latencies can give FRM's rho too, and on the highest one."""
    frm = [row for row in rows if row["measure"] == "frm" and row["p_value"] is not None]
    doubtful = [row for row in frm if float(str(row["p_value"])) > _MAY_BE_CHANCE]
    if not doubtful:
        return ()
    worst = max(doubtful, key=lambda row: float(str(row["rho"])))
    return (
        f"In {len(doubtful)} of {len(frm)} rows permuted latencies can give FRM's rho too (p > "
        f"{_MAY_BE_CHANCE}): it does not show transfer of latency. The highest of them: "
        f"{worst['source']} and {worst['target']}: rho {worst['rho']:.3f}, null "
        f"{worst['null_mean']:.3f}, 95th percentile {worst['null_p95']:.3f}.",
    )

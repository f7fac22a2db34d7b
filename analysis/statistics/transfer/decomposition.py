"""Is FRM's correlation caused by FLOPs, which are equal on every device, or by latency?"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from fleetrank.analysis.arrays.frm import Weights
from fleetrank.analysis.arrays.ranking import few_models_note, few_models_warning
from fleetrank.analysis.panel.pair_groups import (
    GroupAgreement,
    PairAgreement,
    Row,
    agreement_row,
    group_agreement,
    pair_agreements,
    tier_groups,
)
from fleetrank.analysis.panel.pairs import Pair, draws_for
from fleetrank.analysis.panel.panel import FRM, Panel, incomplete_notes
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS, select_pairs, unlisted
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.ranks.frm_scores import frm_weights, weights_note
from fleetrank.analysis.statistics.transfer.components import (
    component_measures,
    mean_shares,
    pair_shares,
)
from fleetrank.analysis.statistics.transfer.transfer import RESIDUAL_NULL
from fleetrank.analysis.tables.table import Table

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
    "residual_null_mean": pl.Float64,
    "residual_p": pl.Float64,
    "p_value": pl.Float64,
    "p_adjusted": pl.Float64,
    "variance_share": pl.Float64,
    "unlike": pl.String,
    "reason": pl.String,
}
_MAY_BE_CHANCE = 0.05
"""Above this one-sided p, FLOPs can explain FRM's rho."""
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
    RESIDUAL_NULL,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentAgreement:
    """FRM or a measure made of some of its parts, between two groups or two platforms.

    Attributes:
        variance_share: of the component with the measure's name; `None` for another measure, or
            where FRM is equal for all models.
        is_component: whether the measure is a component of FRM.
    """

    agreement: GroupAgreement | PairAgreement
    variance_share: float | None
    is_component: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DecompositionResult:
    """Rank agreement of FRM and of its parts.

    Attributes:
        groups: tiers, all measures of a group side by side.
        pairs: all measures of a pair side by side; empty above `MAX_LISTED_PAIRS` pairs.
        selected: every pair that the selection names.
    """

    groups: tuple[ComponentAgreement, ...]
    pairs: tuple[ComponentAgreement, ...]
    selected: tuple[Pair, ...]
    weights: Weights


def decompose(session: Session) -> DecompositionResult:
    """FRM and its parts from tier to tier and for every selected pair.

    Raises:
        NoDataError: fewer than two platforms match.
        AnalysisError: a weight is out of range.
    """
    panel, selection = session.panel, session.selection
    pairs = select_pairs(panel, selection)
    weights = frm_weights(selection)
    listed = pairs if len(pairs) <= MAX_LISTED_PAIRS else ()
    return DecompositionResult(
        groups=tuple(_of_groups(panel, pairs, weights, selection.seed)),
        pairs=tuple(_of_pairs(panel, listed, weights, selection.seed)),
        selected=tuple(pairs),
        weights=weights,
    )


def decomposition_table(session: Session) -> Table:
    """FRM with its null, its parts, and the variance of each part; tiers first, then pairs."""
    panel, found = session.panel, decompose(session)
    is_listed = len(found.selected) <= MAX_LISTED_PAIRS
    every = (*found.groups, *found.pairs)
    draws = draws_for(found.selected)
    notes = (
        *panel.notes,
        *incomplete_notes(panel, found.weights.used),
        *weights_note(found.weights),
        *(() if is_listed else (unlisted(found.selected),)),
        # Few models are in the explanation too; the finding is the more important sentence.
        *(_finding([one.agreement for one in every]) or few_models_warning(len(panel.models))),
    )
    explanation = (
        *_MEANING,
        f"Seed {session.selection.seed}: {draws.bootstrap} resamples, {draws.permutation} "
        f"permutations, {draws.null} draws of the null, {draws.residual_null} of the residual "
        "null.",
        *few_models_note(len(panel.models)),
    )
    return Table(
        title="Decomposition of FRM's correlation",
        frame=pl.DataFrame([_row(one) for one in every], schema=_SCHEMA),
        notes=notes,
        explanation=explanation,
    )


def _of_groups(
    panel: Panel, pairs: Sequence[Pair], weights: Weights, seed: int
) -> Iterator[ComponentAgreement]:
    found = component_measures(panel, weights)
    for group in tier_groups(panel, pairs):
        means = mean_shares(pair_shares(panel, group.pairs, weights), group.clusters)
        shares = dict(zip(weights.used, means.tolist(), strict=True))
        for measure in found:
            yield _with_share(group_agreement(group, measure, seed), shares)


def _of_pairs(
    panel: Panel, pairs: Sequence[Pair], weights: Weights, seed: int
) -> Iterator[ComponentAgreement]:
    by_pair = pair_shares(panel, pairs, weights).T.tolist()
    by_measure = [
        pair_agreements(panel, one, pairs, seed) for one in component_measures(panel, weights)
    ]
    for shares, agreements in zip(by_pair, zip(*by_measure, strict=True), strict=True):
        for agreement in agreements:
            yield _with_share(agreement, dict(zip(weights.used, shares, strict=True)))


def _with_share(
    agreement: GroupAgreement | PairAgreement, shares: Mapping[str, float]
) -> ComponentAgreement:
    share = shares.get(agreement.measure, math.nan)
    return ComponentAgreement(
        agreement=agreement,
        variance_share=None if math.isnan(share) else share,
        is_component=agreement.measure in shares,
    )


def _row(one: ComponentAgreement) -> Row:
    """The row's figures and why one is missing."""
    figures = one.agreement.figures
    reasons = [figures.reason] if figures.reason is not None else []
    if one.agreement.measure in _WITHOUT_LATENCY and figures.rho is not None:
        reasons.append("no null: the measure has no latency to permute")
    if figures.null_mean is not None and figures.headroom is None:
        reasons.append("no headroom: the null is 1")
    if one.is_component and one.variance_share is None and figures.rho is not None:
        reasons.append("no share: FRM is equal for all models")
    return agreement_row(one.agreement) | {
        "variance_share": one.variance_share,
        "reason": "; ".join(reasons) or None,
    }


def _finding(found: Sequence[GroupAgreement | PairAgreement]) -> tuple[str, ...]:
    """A note on how often FLOPs can explain FRM's rho, and on the highest one."""
    frm = [one for one in found if one.measure == FRM and one.figures.residual_p is not None]
    doubtful = [one for one in frm if (one.figures.residual_p or 0.0) > _MAY_BE_CHANCE]
    if not doubtful:
        return ()
    worst = max(doubtful, key=lambda one: one.figures.rho or 0.0)
    figures = worst.figures
    return (
        f"In {len(doubtful)} of {len(frm)} rows FLOPs can explain FRM's rho, so it does not show "
        f"transfer of latency beyond this: residual_p > {_MAY_BE_CHANCE}; the highest rho of them "
        f"is {figures.rho:.3f} ({worst.source} and {worst.target}, residual null "
        f"{figures.residual_null_mean:.3f}, p = {figures.residual_p:.2g}).",
    )

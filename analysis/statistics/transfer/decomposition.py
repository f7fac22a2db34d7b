"""Is FRM's correlation caused by FLOPs, which are equal on every device, or by latency?"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fleetrank.analysis.arrays.frm import Weights
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.pair_groups import GroupAgreement, PairAgreement, agreements
from fleetrank.analysis.panel.panel import FRM
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.ranks.frm_scores import frm_weights
from fleetrank.analysis.statistics.transfer.compared import Compared
from fleetrank.analysis.statistics.transfer.frm_measures import (
    component_measures,
    mean_shares,
    pair_shares,
)

_MAY_BE_CHANCE = 0.05
"""Above this one-sided p, FLOPs can explain FRM's rho."""
_WITHOUT_LATENCY = ("frm_without_latency", "flops", "memory")


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
        groups: all measures of a group side by side.
        pairs: all measures of a pair side by side; empty above `MAX_LISTED_PAIRS` pairs.
    """

    groups: tuple[ComponentAgreement, ...]
    pairs: tuple[ComponentAgreement, ...]
    weights: Weights


def decompose(session: Session, compared: Compared) -> DecompositionResult:
    """FRM and its parts between groups and for every listed pair.

    Raises:
        AnalysisError: a weight is out of range.
    """
    panel, selection = session.panel, session.selection
    groups, listed = compared.groups, compared.listed
    weights = frm_weights(selection)
    found = [
        agreements(panel, groups, listed, measure, selection.seed)
        for measure in component_measures(panel, weights)
    ]
    means = [
        mean_shares(pair_shares(panel, group.pairs, weights), group.clusters) for group in groups
    ]
    return DecompositionResult(
        groups=_with_shares([of_groups for of_groups, _ in found], means, weights),
        pairs=_with_shares(
            [of_pairs for _, of_pairs in found], pair_shares(panel, listed, weights).T, weights
        ),
        weights=weights,
    )


def _with_shares(
    by_measure: Sequence[Sequence[GroupAgreement | PairAgreement]],
    shares: Iterable[Floats],
    weights: Weights,
) -> tuple[ComponentAgreement, ...]:
    """All measures of one group or pair side by side; `shares` has an array for each of these."""
    return tuple(
        _with_share(agreement, dict(zip(weights.used, mine.tolist(), strict=True)))
        for mine, same in zip(shares, zip(*by_measure, strict=True), strict=True)
        for agreement in same
    )


def _with_share(
    agreement: GroupAgreement | PairAgreement, shares: Mapping[str, float]
) -> ComponentAgreement:
    share = shares.get(agreement.measure, math.nan)
    return ComponentAgreement(
        agreement=agreement,
        variance_share=None if math.isnan(share) else share,
        is_component=agreement.measure in shares,
    )


def reason_of(one: ComponentAgreement) -> str | None:
    """Why figures of a row are missing; `None` if none is."""
    figures = one.agreement.figures
    reasons = [figures.reason] if figures.reason is not None else []
    if one.agreement.measure in _WITHOUT_LATENCY and figures.rho is not None:
        reasons.append("no null: the measure has no latency to permute")
    if figures.null_mean is not None and figures.headroom is None:
        reasons.append("no headroom: the null is 1")
    if one.is_component and one.variance_share is None and figures.rho is not None:
        reasons.append("no share: FRM is equal for all models")
    return "; ".join(reasons) or None


def finding(found: DecompositionResult) -> tuple[str, ...]:
    """A note on how often FLOPs can explain FRM's rho, and on the highest one."""
    every = [one.agreement for one in (*found.groups, *found.pairs)]
    frm = [one for one in every if one.measure == FRM and one.figures.residual_p is not None]
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

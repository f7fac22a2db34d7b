"""Is FRM's correlation caused by FLOPs, equal on every device, or by latency?

FRM, its parts and their shares of its variance, as measures of a panel.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.frm import EQUAL_WEIGHTS, FrmWeights
from fleetrank.analysis.arrays.known_means import cluster_weights
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, require_finite
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.agreement import MAY_BE_CHANCE, Agreement, agreements
from fleetrank.analysis.panel.conditions import AXES, Pair, compared
from fleetrank.analysis.panel.draws import blocks
from fleetrank.analysis.panel.panel import FRM, FRM_WITHOUT_MEMORY, Measure, Panel, components
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.ranks.frm_scores import frm_weights
from fleetrank.foundation.vocabulary import Axis

_WITHOUT_LATENCY = ("frm_without_latency", "flops", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrmPart:
    """FRM, or a part of it, between two conditions.

    Attributes:
        variance_share: of the component of FRM that the measure is; `None` for another measure.
    """

    agreement: Agreement
    variance_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecompositionResult:
    """Rank agreement of FRM and of its parts.

    Attributes:
        groups: all measures of a group side by side.
        pairs: all measures of a pair side by side; empty above `MAX_LISTED_PAIRS` pairs.
    """

    groups: tuple[FrmPart, ...]
    pairs: tuple[FrmPart, ...]
    weights: FrmWeights


def decompose(session: Session, axis: Axis) -> DecompositionResult:
    """FRM and its parts between groups and for every listed pair.

    Raises:
        AnalysisError: a weight is out of range, or the axis is inside platforms.
    """
    if AXES[axis].is_inside_platform:
        raise AnalysisError(
            f"the parts of FRM are compared between platforms, not between {AXES[axis].level}",
            "leave out `part=full`, or choose `along=device`",
        )
    panel, found = session.panel, compared(session, axis)
    weights = frm_weights(session)
    both = [
        agreements(found, measure, session.selection.seed)
        for measure in component_measures(panel, weights)
    ]
    means = [
        mean_shares(pair_shares(panel, group.pairs, weights), group.clusters)
        for group in found.groups
    ]
    singles = pair_shares(panel, found.listed, weights).T
    return DecompositionResult(
        groups=_with_shares([of_groups for of_groups, _ in both], means, weights),
        pairs=_with_shares([of_pairs for _, of_pairs in both], singles, weights),
        weights=weights,
    )


def _with_shares(
    by_measure: Sequence[Sequence[Agreement]], shares: Iterable[Floats], weights: FrmWeights
) -> tuple[FrmPart, ...]:
    """All measures of one group or pair side by side; `shares` has an array for each of these."""
    return tuple(
        _with_share(one, dict(zip(weights.used, mine.tolist(), strict=True)))
        for mine, same in zip(shares, zip(*by_measure, strict=True), strict=True)
        for one in same
    )


def _with_share(one: Agreement, shares: dict[str, float]) -> FrmPart:
    """The agreement with the share of its component, and why figures of it are missing."""
    share = shares.get(one.measure, math.nan)
    reasons = [one.reason] if one.reason is not None else []
    if one.measure in _WITHOUT_LATENCY and one.rho is not None:
        reasons.append("no null: the measure has no latency to permute")
    if one.nulls.null_mean is not None and one.nulls.headroom is None:
        reasons.append("no headroom: the null is 1")
    if one.measure in shares and math.isnan(share) and one.rho is not None:
        reasons.append("no share: FRM is equal for all models")
    return FrmPart(
        agreement=replace(one, reason="; ".join(reasons) or None),
        variance_share=None if math.isnan(share) else share,
    )


def finding(found: DecompositionResult) -> tuple[str, ...]:
    """A note on how often FLOPs can explain FRM's rho, and on the highest one."""
    every = (part.agreement for part in (*found.groups, *found.pairs))
    frm = [
        one
        for one in every
        if one.measure == _compound(found.weights) and one.nulls.residual_p is not None
    ]
    doubtful = [one for one in frm if one.exceeds_flops is False]
    if not doubtful:
        return ()
    worst = max(doubtful, key=lambda one: one.rho or 0.0)
    return (
        f"In {len(doubtful)} of {len(frm)} rows FLOPs can explain FRM's rho, so it does not show "
        f"transfer of latency beyond this: residual_p > {MAY_BE_CHANCE}; the highest rho of them "
        f"is {worst.rho:.3f} ({worst.source} and {worst.target}, residual null "
        f"{worst.nulls.residual_null_mean:.3f}, p = {worst.nulls.residual_p:.2g}).",
    )


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
    # The largest range that rounding can leave in equal sums of such logarithms.
    dust = 1e-12 * np.maximum(np.abs(logs).max(axis=(0, 1)), 1.0)
    variance = np.where(np.ptp(total, axis=0) > dust, variance, np.nan)
    shares: Floats = (logs * centred).sum(axis=1) / variance
    return shares


def component_logs(panel: Panel, weights: FrmWeights = EQUAL_WEIGHTS) -> Floats:
    """Weighted logarithms of the components used, (n_components, n_models, n_platforms).

    NaN in all where one is missing or not above 0, so that all parts have the same models.
    """
    exponents = asdict(weights)
    values = _complete(panel, weights)
    return np.stack([exponents[name] * np.log(values[name]) for name in weights.used])


def _complete(panel: Panel, weights: FrmWeights) -> dict[str, Floats]:
    """The components used where all of them are known, NaN elsewhere."""
    values = {name: part for name, part in components(panel).items() if name in weights.used}
    known = np.isfinite(np.stack(list(values.values()))).all(axis=0)
    return {name: np.where(known, part, np.nan) for name, part in values.items()}


def component_measures(panel: Panel, weights: FrmWeights = EQUAL_WEIGHTS) -> tuple[Measure, ...]:
    """FRM and its parts, all over the models that have every component used on a platform.

    Latency first, then latency given FLOPs and, of language models, given the bytes of the weights;
    FRM, FRM without each component, and the other components alone.
    """
    values = _complete(panel, weights)
    latency = values.pop("latency")
    known = np.where(panel.flops > 0, panel.flops, np.nan)
    flops = np.where(panel.flops > 0, panel.flops, 1.0)
    alone = Measure(name="latency", rest=np.ones_like(latency), latency=latency, flops=known)
    found = [alone]
    if "flops" in values:
        # No model without FLOPs is in any block; a finite number keeps the ranking code plain.
        found.append(replace(alone, name="latency_given_flops", given=flops))
    if np.isfinite(panel.weight_bytes).any():
        found.append(_given_weights(panel, alone))
    found.append(_weighted(_compound(weights), values, latency, weights, known))
    for left_out in values:
        rest = {name: part for name, part in values.items() if name != left_out}
        found.append(_weighted(f"frm_without_{left_out}", rest, latency, weights, known))
    nothing = np.where(np.isfinite(latency), 1.0, np.nan)
    others = {"frm_without_latency": values, **{name: {name: values[name]} for name in values}}
    found += [
        replace(_weighted(name, parts, nothing, weights, known), has_latency=False)
        for name, parts in others.items()
        if parts
    ]
    return tuple(found)


def _compound(weights: FrmWeights) -> str:
    """The name of FRM with these weights."""
    return FRM if weights.memory else FRM_WITHOUT_MEMORY


def _given_weights(panel: Panel, alone: Measure) -> Measure:
    """Latency beyond the bytes of the weights, which a step reads once; over models that have them.

    A model without a known size, such as one of the user, is left out.
    """
    known = panel.weight_bytes > 0
    lacking = np.where(known, 1.0, np.nan)[:, None]
    return replace(
        alone,
        name="latency_given_weights",
        latency=alone.latency * lacking,
        given=np.where(known, panel.weight_bytes, 1.0),
    )


def _weighted(
    name: str, parts: dict[str, Floats], latency: Floats, weights: FrmWeights, flops: Floats
) -> Measure:
    """The product of the parts and latency, each to the power of its weight."""
    exponents = asdict(weights)
    rest = np.ones_like(latency)
    for part, values in parts.items():
        rest = rest * values ** exponents[part]
    return Measure(name=name, rest=rest, latency=latency**weights.latency, flops=flops)


def pair_shares(panel: Panel, pairs: Sequence[Pair], weights: FrmWeights = EQUAL_WEIGHTS) -> Floats:
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

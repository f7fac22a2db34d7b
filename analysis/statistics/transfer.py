"""Does a ranking carry over? Table `transfer`: between devices, runtimes, precisions and others."""

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.bootstrap import cluster_weights, known
from fleetrank.analysis.arrays.pareto import Mask
from fleetrank.analysis.arrays.ranking import (
    EQUAL_WEIGHTS,
    MIN_MODELS,
    Floats,
    Weights,
    few_models_note,
    few_models_warning,
    require_finite,
)
from fleetrank.analysis.arrays.reliability import (
    MIN_REPEATS_TO_SPLIT,
    reliability_interval,
    retest_reliability,
    split_halves,
    split_reliability,
)
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.agreement import MAY_BE_CHANCE, Agreement, agreements, positions_of
from fleetrank.analysis.panel.conditions import (
    AXES,
    MAX_LISTED_PAIRS,
    Compared,
    Pair,
    compared,
    unlisted,
)
from fleetrank.analysis.panel.draws import Draws, blocks, draws_for
from fleetrank.analysis.panel.panel import (
    FRM,
    Measure,
    Panel,
    Repeats,
    components,
    incomplete_notes,
    measures,
)
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.frm_scores import frm_weights, weights_note
from fleetrank.analysis.statistics.transfer_within import inside_warnings, within_groups
from fleetrank.analysis.stored.selection import STATISTIC, are_unlike
from fleetrank.analysis.tables.table import Table, explained, frame_of
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.foundation.errors import count_of
from fleetrank.foundation.vocabulary import Axis

# Is FRM's correlation caused by FLOPs, which are equal on every device, or by latency?
#
# FRM, its parts and their shares of its variance, as measures of a panel.

_ALONG = TABLES["transfer"].settings["along"]
_WITHOUT_LATENCY = ("frm_without_latency", "flops", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecompositionResult:
    """Rank agreement of FRM and of its parts.

    Attributes:
        groups: all measures of a group side by side.
        pairs: all measures of a pair side by side; empty above `MAX_LISTED_PAIRS` pairs.
    """

    groups: tuple[Agreement, ...]
    pairs: tuple[Agreement, ...]
    weights: Weights


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
    weights = frm_weights(session.selection)
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
    by_measure: Sequence[Sequence[Agreement]], shares: Iterable[Floats], weights: Weights
) -> tuple[Agreement, ...]:
    """All measures of one group or pair side by side; `shares` has an array for each of these."""
    return tuple(
        _with_share(one, dict(zip(weights.used, mine.tolist(), strict=True)))
        for mine, same in zip(shares, zip(*by_measure, strict=True), strict=True)
        for one in same
    )


def _with_share(one: Agreement, shares: dict[str, float]) -> Agreement:
    """The agreement with the share of its component, and why figures of it are missing."""
    share = shares.get(one.measure, math.nan)
    reasons = [one.reason] if one.reason is not None else []
    if one.measure in _WITHOUT_LATENCY and one.rho is not None:
        reasons.append("no null: the measure has no latency to permute")
    if one.null_mean is not None and one.headroom is None:
        reasons.append("no headroom: the null is 1")
    if one.measure in shares and math.isnan(share) and one.rho is not None:
        reasons.append("no share: FRM is equal for all models")
    return replace(
        one,
        variance_share=None if math.isnan(share) else share,
        reason="; ".join(reasons) or None,
    )


def finding(found: DecompositionResult) -> tuple[str, ...]:
    """A note on how often FLOPs can explain FRM's rho, and on the highest one."""
    every = (*found.groups, *found.pairs)
    frm = [one for one in every if one.measure == FRM and one.residual_p is not None]
    doubtful = [one for one in frm if one.exceeds_flops is False]
    if not doubtful:
        return ()
    worst = max(doubtful, key=lambda one: one.rho or 0.0)
    return (
        f"In {len(doubtful)} of {len(frm)} rows FLOPs can explain FRM's rho, so it does not show "
        f"transfer of latency beyond this: residual_p > {MAY_BE_CHANCE}; the highest rho of them "
        f"is {worst.rho:.3f} ({worst.source} and {worst.target}, residual null "
        f"{worst.residual_null_mean:.3f}, p = {worst.residual_p:.2g}).",
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
    found.append(_weighted("frm", values, latency, weights, known))
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
    name: str, parts: dict[str, Floats], latency: Floats, weights: Weights, flops: Floats
) -> Measure:
    """The product of the parts and latency, each to the power of its weight."""
    exponents = asdict(weights)
    rest = np.ones_like(latency)
    for part, values in parts.items():
        rest = rest * values ** exponents[part]
    return Measure(name=name, rest=rest, latency=latency**weights.latency, flops=flops)


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


# How repeatable each platform's ranking is, and the highest agreement that this allows.

_FEW_REPEATS, _LEAST_SPLITS = 60, 10
"""With more repeats fewer splits are enough: at 310, ten and fifty differ by less than 0.01."""
UNLIKE_STATISTICS = "no ceiling between unlike statistics"
"""Reason of a pair of platforms, such as a mean and a minimum."""
_NO_CEILING = "no ceiling: a side has no reliability over the common models (rows `platform`)"
FEW_PLATFORMS = 50
"""Up to this many platforms splits and resamples are cheap, so many are made."""


class Method(StrEnum):
    """How a reliability was found."""

    SESSIONS = "pairs of sessions"
    SPLIT = "split repeats"
    RETEST = "pairs of sweeps"


Rows = npt.NDArray[np.int64]


Found = tuple[float, Method | None, int]
"""A reliability, how it was found, and from how many models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Random halves and single sweeps of one measure on every platform, as logarithms.

    Attributes:
        halves: (2, n_models, n_platforms, n_splits), NaN where a model has fewer than 2 repeats.
        lengthening: (n_models, n_platforms), see `reliability.split_halves`.
        sweeps: (n_models, n_platforms, n_sweeps).
        sessions: (n_models, n_platforms, n_sessions), where a model has 2 repeats or more.
        statistics: what the latencies of each platform are; `None` where not stated.
        known: what `reliability_of` found, by models and column.
    """

    measure: Measure
    halves: Floats
    lengthening: Floats
    sweeps: Floats
    sessions: Floats
    statistics: tuple[str | None, ...]
    known: dict[tuple[bytes, int], Found] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCeilings:
    """Reliability of both sides of every pair over its common models; NaN where undefined.

    Attributes:
        source, target, ceiling: (n_pairs,).
        has_models: (n_pairs,), whether it has the 5 common models that a rho needs.
        methods: how the two were found, `None` without a ceiling.
    """

    source: Floats
    target: Floats
    ceiling: Floats
    has_models: Mask
    methods: tuple[str | None, ...]

    def chosen(self, at: Rows) -> "PairCeilings":
        """Those of the pairs at these positions."""
        return PairCeilings(
            source=self.source[at],
            target=self.target[at],
            ceiling=self.ceiling[at],
            has_models=self.has_models[at],
            methods=tuple(self.methods[number] for number in at.tolist()),
        )


def noises(session: Session) -> tuple[Noise, Noise]:
    """Noise of latency alone and of FRM, in the order of `panel.measures`; made once a session."""
    return session.once(_noises)


def _noises(session: Session) -> tuple[Noise, Noise]:
    panel, repeats, seed = session.panel, session.repeats, session.selection.seed
    latency, frm = measures(panel)
    flops = np.where(panel.flops > 0, panel.flops, np.nan)
    return (
        _noise(latency, panel, repeats, (slice(0, 1), np.ones_like(flops)), seed),
        _noise(frm, panel, repeats, (slice(0, 2), flops), seed),
    )


def _noise(
    measure: Measure,
    panel: Panel,
    repeats: Repeats,
    made_of: tuple[slice, Floats],
    seed: int,
) -> Noise:
    """The noise from the parts measured in each repeat, and the constant part."""
    measured, constant = made_of
    keys = panel.keys
    log_constant = np.log(constant)
    n_splits = splits_for(len(keys), repeats.processes.shape[-1])
    halves = np.empty((2, *measure.latency.shape, n_splits))
    lengthening = np.empty(measure.latency.shape)
    for column, key in enumerate(keys):
        parts = repeats.processes[measured, :, column]
        mine, longer = split_halves(parts, n_splits, platform_rng(seed, key, measure.name))
        halves[:, :, column] = mine + log_constant[:, None]
        lengthening[:, column] = np.where(np.isfinite(log_constant), longer, np.nan)
    sweeps, sessions = (
        np.log(medians[measured]).sum(axis=0) + log_constant[:, None, None]
        for medians in (repeats.sweeps, repeats.sessions)
    )
    return Noise(
        measure=measure,
        halves=halves,
        lengthening=lengthening,
        sweeps=sweeps,
        sessions=sessions,
        statistics=tuple(panel.platforms[STATISTIC]),
    )


def splits_for(n_platforms: int, n_repeats: int) -> int:
    """Number of splits: long halves differ less from split to split."""
    most = 200 if n_platforms <= FEW_PLATFORMS else 50
    return max(_LEAST_SPLITS, min(most, most * _FEW_REPEATS // n_repeats))


def platform_rng(seed: int, key: str, purpose: str) -> np.random.Generator:
    """A separate random stream per platform: another platform does not change its figures."""
    return np.random.default_rng([seed, zlib.crc32(f"{key} {purpose}".encode())])


def reliability_of(noise: Noise, models: Rows, column: int) -> Found:
    """Reliability of one platform over `models`, how it was found, and from how many of them.

    It is computed once: pairs with the same common models share a platform's figure.

    Pairs of sessions in which 5 models have two repeats: the mean rho is the generalisability
    coefficient of one session. Else halves of the newest sweep's repeats, else pairs of sweeps. NaN
    and `None` where no two rankings agree at all; the number is then that of models with 2 repeats
    or more.

    Source: Brennan 2001, 4.1: the coefficient is the expected correlation of two random sessions.
    """
    key = (models.tobytes(), column)
    if key not in noise.known:
        noise.known[key] = _reliability(noise, models, column)
    return noise.known[key]


def _reliability(noise: Noise, models: Rows, column: int) -> Found:
    between, n_between = retest_reliability(noise.sessions[models, column])
    if between > 0:
        return between, Method.SESSIONS, n_between
    n_split = int(np.isfinite(noise.lengthening[models, column]).sum())
    if n_between == 0:
        split = split_reliability(
            noise.halves[:, models, column], noise.lengthening[models, column]
        )
        if np.isfinite(split):
            return split, Method.SPLIT, n_split
        retest, n_compared = retest_reliability(noise.sweeps[models, column])
        if retest > 0:
            return retest, Method.RETEST, n_compared
    return float("nan"), None, n_split


def why_unreliable(noise: Noise, column: int) -> str:
    """Why `reliability_of` all of a platform's models is undefined."""
    n_models = int(np.isfinite(noise.lengthening[:, column]).sum())
    if n_models < MIN_MODELS:
        return (
            f"{count_of(n_models, 'model')} with {MIN_REPEATS_TO_SPLIT} repeats or more, at least "
            f"{MIN_MODELS} needed, and no two sweeps of as many"
        )
    sessions = np.isfinite(noise.sessions[:, column]).sum(axis=0)
    repeated = "sessions" if (sessions >= MIN_MODELS).sum() > 1 else "halves of its repeats"
    return f"{repeated} do not agree at all"


def platform_interval(noise: Noise, column: int, key: str, seed: int) -> tuple[float, float] | None:
    """95 % percentile bootstrap over models of the reliability; `None` below 9 models."""
    rng = platform_rng(seed, key, f"{noise.measure.name} interval")
    return reliability_interval(noise.halves[:, :, column], noise.lengthening[:, column], rng)


def pair_ceilings(noise: Noise, pairs: Sequence[Pair]) -> PairCeilings:
    """sqrt(reliability of source x reliability of target), over each pair's common models.

    None between a mean and a minimum: the same device could rank models differently by the two
    without any noise, so the bound would not separate the devices from the statistics.

    Source: Spearman 1904, correction for attenuation.
    """
    sides = np.full((2, len(pairs)), np.nan)
    has_models = np.zeros(len(pairs), dtype=np.bool_)
    methods: list[str | None] = [None] * len(pairs)
    for block in blocks(np.isfinite(noise.measure.values), pairs):
        has_models[block.where] = block.models.size >= MIN_MODELS
        found = [reliability_of(noise, block.models, column) for column in block.columns.tolist()]
        values = np.array([value for value, *_ in found])
        sides[:, block.where] = values[block.source], values[block.target]
        for where, i, j in zip(block.where, block.source, block.target, strict=True):
            both = [method for _, method, _ in (found[i], found[j]) if method is not None]
            methods[where] = " / ".join(dict.fromkeys(both)) if len(both) > 1 else None
    source, target = sides
    ceiling = np.sqrt(np.maximum(source * target, 0.0))
    for where, (i, j) in enumerate(pairs):
        if are_unlike(noise.statistics[i], noise.statistics[j]):
            ceiling[where], methods[where] = np.nan, None
    return PairCeilings(
        source=source,
        target=target,
        ceiling=ceiling,
        has_models=has_models,
        methods=tuple(methods),
    )


def with_ceilings(
    noise: Noise, found: Compared, means: Sequence[Agreement], singles: Sequence[Agreement]
) -> tuple[list[Agreement], list[Agreement]]:
    """The agreements of groups and of listed pairs, each with the ceiling that noise allows it.

    A group's ceiling is the mean of its pairs', weighted as their rho is.
    """
    listed = pair_ceilings(noise, found.listed)
    if found.listed:
        of_groups = [listed.chosen(at) for at in positions_of(found.groups, found.listed)]
    else:
        of_groups = [pair_ceilings(noise, group.pairs) for group in found.groups]
    groups = []
    for mean, group, mine in zip(means, found.groups, of_groups, strict=True):
        methods = sorted({method for method in mine.methods if method is not None})
        n_lacking = int(np.isnan(mine.ceiling[mine.has_models]).sum())
        why = f"no ceiling: {n_lacking} of {int(mine.has_models.sum())} pairs have none"
        ceiling = mean_ceiling(mine, group.clusters)
        groups.append(_with_ceiling(mean, ceiling, ", ".join(methods) or None, why))
    pairs = []
    for at, single in enumerate(singles):
        source, target = known(listed.source[at]), known(listed.target[at])
        why = UNLIKE_STATISTICS if None not in {source, target} else _NO_CEILING
        one = _with_ceiling(single, float(listed.ceiling[at]), listed.methods[at], why)
        pairs.append(replace(one, reliability_source=source, reliability_target=target))
    return groups, pairs


def _with_ceiling(one: Agreement, ceiling: float, method: str | None, why: str) -> Agreement:
    is_known = one.rho is not None and not np.isnan(ceiling)
    return replace(
        one,
        ceiling=known(ceiling),
        share_of_ceiling=one.rho / ceiling if one.rho is not None and is_known else None,
        method=method,
        no_ceiling=why if one.rho is not None and not is_known else None,
    )


def mean_ceiling(ceilings: PairCeilings, clusters: npt.ArrayLike) -> float:
    """The mean over pairs, weighted as their mean rho is; NaN where a pair with a rho has none.

    A share is only valid if the mean rho and the mean ceiling use the same pairs.
    """
    ranked = ceilings.ceiling[ceilings.has_models]
    if ranked.size == 0 or np.isnan(ranked).any():
        return float("nan")
    weights, _, _ = cluster_weights(ceilings.ceiling, clusters)
    return float(np.nansum(ceilings.ceiling * weights))


_NAMES = ("level", "measure", "source", "target")
_FIGURES = (
    "n_models", "most_models", "n_pairs", "n_clusters", "rho", "low", "high", "null_mean",
    "null_p95", "headroom", "residual_null_mean", "residual_p", "residual_p_adjusted",
)  # fmt: skip
_NOISE = ("ceiling", "share_of_ceiling", "gap_low", "gap_high")
_TESTS = ("p_value", "p_adjusted", "tau_b", "std_over_pairs", "unlike", "reason")

_NO_TIERS = (
    "Tier to tier: undefined, no two devices were measured at equal batch "
    "(`allow_unlike_batch=true` compares others)."
)
_TITLES = {Axis.DEVICE: "Rank transfer", Axis.RUNTIME: "Framework invariance"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferResult:
    """Rank agreement by latency and by FRM, along one axis.

    Attributes:
        groups: means over pairs; latency first, then FRM, of one group after the other.
        pairs: those of latency first; empty above `MAX_LISTED_PAIRS` pairs.
        selected: every pair that the selection names.
        n_models: of all conditions together.
        notes: facts that the reader must know.
        within: latency among alike models, of one group after the other; empty for an axis inside
            platforms.
    """

    axis: Axis
    groups: tuple[Agreement, ...]
    pairs: tuple[Agreement, ...]
    selected: tuple[Pair, ...]
    draws: Draws
    seed: int
    n_models: int
    notes: tuple[str, ...]
    within: tuple[Agreement, ...] = ()


def transfer(session: Session, axis: Axis = Axis.DEVICE) -> TransferResult:
    """Means over the pairs along an axis, and every listed pair; made once a session.

    Raises:
        NoDataError: no two selected conditions differ in the axis and are equal in the rest.
    """
    return session.once(_transfer, axis)


def _transfer(session: Session, axis: Axis) -> TransferResult:
    found, seed = compared(session, axis), session.selection.seed
    is_inside = found.rule.is_inside_platform
    of_groups, of_pairs = [], list[Agreement]()
    for number, measure in enumerate(found.conditions.measures):
        means, singles = agreements(found, measure, seed)
        if not is_inside:
            means, singles = with_ceilings(noises(session)[number], found, means, singles)
        of_groups.append(means)
        of_pairs += singles
    return TransferResult(
        axis=axis,
        groups=tuple(one for group in zip(*of_groups, strict=True) for one in group),
        pairs=tuple(of_pairs),
        selected=found.pairs,
        draws=draws_for(found.pairs, found.conditions.n_models),
        seed=seed,
        n_models=found.conditions.n_models,
        notes=(
            (*found.conditions.banners, *found.conditions.left_out)
            if is_inside
            else (*session.panel.notes, *incomplete_notes(session.panel))
        ),
        within=() if is_inside else within_groups(session.panel, found.groups, seed),
    )


def transfer_table(session: Session) -> Table:
    """Rank agreement of latency and FRM along an axis: tiers, runtimes, platforms."""
    return transfer_as_table(transfer(session, Axis(_ALONG.chosen(session.selection))))


def transfer_as_table(found: TransferResult) -> Table:
    """The result of `transfer`: one row per measure of each group, then of each pair."""
    is_inside = AXES[found.axis].is_inside_platform
    notes = (
        *found.notes,
        *((unlisted(found.selected),) if len(found.selected) > MAX_LISTED_PAIRS else ()),
        *(() if found.groups else (_NO_TIERS,)),
        *few_models_warning(found.n_models),
        *inside_warnings(found.within),
    )
    noise = {"ceiling_of_rho": "", "within_alike": ""} if is_inside else {}
    explanation = explained("transfer/ranks", _values(found.axis, found.seed, found.draws) | noise)
    places = ("platform_key",) if is_inside else ()
    rows = (*found.groups, *found.within, *found.pairs)
    title = _TITLES.get(found.axis, f"Rank transfer along {found.axis}")
    frame = frame_of(Agreement, rows).select((*_NAMES, *places, *_FIGURES, *_NOISE, *_TESTS))
    return Table(
        title=title,
        frame=frame,
        notes=notes,
        explanation=(*explanation, *few_models_note(found.n_models)),
        brief=Table(title=title, frame=frame.with_columns(conclusion=_conclusion())),
    )


def _conclusion() -> pl.Expr:
    """Whether rho exceeds what FLOPs explain; null without a residual null."""
    too_few = pl.col("rho").is_null() & (pl.col("n_models") < MIN_MODELS)
    return (
        pl.when(too_few)
        .then(pl.lit("too few"))
        .when(pl.col("residual_p") <= MAY_BE_CHANCE)
        .then(pl.lit("beyond FLOPs"))
        .when(pl.col("residual_p").is_not_null())
        .then(pl.lit("not beyond"))
    )


def decomposition_table(session: Session) -> Table:
    """FRM with its null, its parts, and the variance of each part; groups first, then pairs."""
    axis = Axis(_ALONG.chosen(session.selection))
    found = decompose(session, axis)
    n_models, pairs = len(session.panel.models), compared(session, axis).pairs
    notes = (
        *session.panel.notes,
        *incomplete_notes(session.panel, found.weights.used),
        *weights_note(found.weights),
        *(() if found.pairs else (unlisted(pairs),)),
        # Few models are in the explanation too; the finding is the more important sentence.
        *(finding(found) or few_models_warning(n_models)),
    )
    values = _values(axis, session.selection.seed, draws_for(pairs, n_models))
    between = "" if axis is Axis.DEVICE else f" between {AXES[axis].level}"
    rows = (*found.groups, *found.pairs)
    return Table(
        title=f"Decomposition of FRM's correlation{between}",
        frame=frame_of(Agreement, rows).select((*_NAMES, *_FIGURES, "variance_share", *_TESTS)),
        notes=notes,
        explanation=(*explained("transfer/full", values), *few_models_note(n_models)),
    )


def _values(axis: Axis, seed: int, draws: Draws) -> dict[str, object]:
    """What the explanation says of the axis and of the draws."""
    rule, values = AXES[axis], {"seed": seed} | asdict(draws)
    if axis is not Axis.DEVICE:
        equal = "" if axis is Axis.RUNTIME else f"pairs with equal {', '.join(rule.equal)}; "
        values["transfer_of_tiers"] = (
            f"{rule.level.capitalize()}: {equal}mean inside a device model (a cluster) first, then "
            "over device models."
        )
    return values

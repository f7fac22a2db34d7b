"""Does a ranking carry over? Table `transfer`: between devices, runtimes, precisions and others."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.known_means import known
from fleetrank.analysis.arrays.ranking import MIN_MODELS, few_models_warning
from fleetrank.analysis.arrays.sample_size import few_models_note
from fleetrank.analysis.panel.agreement import (
    MAY_BE_CHANCE,
    Agreement,
    RhoCeiling,
    agreements,
    positions_of,
)
from fleetrank.analysis.panel.conditions import (
    AXES,
    MAX_LISTED_PAIRS,
    Compared,
    Pair,
    compared,
    unlisted,
)
from fleetrank.analysis.panel.draws import Draws, draws_for
from fleetrank.analysis.panel.panel import incomplete_notes
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.ranks.frm_scores import weights_note
from fleetrank.analysis.statistics.transfer.decomposition import FrmPart, decompose, finding
from fleetrank.analysis.statistics.transfer.rank_reliability import (
    UNLIKE_STATISTICS,
    Noise,
    mean_ceiling,
    noises,
    pair_ceilings,
)
from fleetrank.analysis.statistics.transfer.transfer_within import inside_warnings, within_groups
from fleetrank.analysis.tables.table import Table, explained, frame_of
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.foundation.vocabulary import Axis

_ALONG = TABLES["transfer"].settings["along"]
_NO_CEILING = "no ceiling: a side has no reliability over the common models (rows `platform`)"


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
        noise_of = replace(one.noise, reliability_source=source, reliability_target=target)
        pairs.append(replace(one, noise=noise_of))
    return groups, pairs


def _with_ceiling(one: Agreement, ceiling: float, method: str | None, why: str) -> Agreement:
    is_known = one.rho is not None and not np.isnan(ceiling)
    noise = RhoCeiling(
        ceiling=known(ceiling),
        method=method,
        no_ceiling=why if one.rho is not None and not is_known else None,
    )
    return replace(one, noise=noise)


_NOISE = ("ceiling", "gap_low", "gap_high")
_NAMES = ("level", "measure", "source", "target")
_FIGURES = (
    "n_models", "most_models", "n_pairs", "n_clusters", "rho", "low", "high", "null_mean",
    "null_p95", "headroom", "residual_null_mean", "residual_p", "residual_p_adjusted",
)  # fmt: skip
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
        frame=frame_of(FrmPart, rows).select((*_NAMES, *_FIGURES, "variance_share", *_TESTS)),
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

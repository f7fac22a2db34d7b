"""Does a ranking carry over? Between platforms, between tiers, between runtimes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import few_models_note, few_models_warning
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.pair_groups import (
    GroupAgreement,
    PairAgreement,
    PairGroup,
    Row,
    agreement_row,
    group_agreement,
    pair_agreements,
    runtime_groups,
    tier_groups,
)
from fleetrank.analysis.panel.pairs import Draws, Pair, draws_for
from fleetrank.analysis.panel.panel import incomplete_notes
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS, select_pairs, unlisted
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.transfer.noise import (
    Noise,
    mean_ceiling,
    noises,
    pair_ceilings,
)
from fleetrank.analysis.tables.table import Table

_SCHEMA = {
    "level": pl.String,
    "measure": pl.String,
    "source": pl.String,
    "target": pl.String,
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
    "ceiling": pl.Float64,
    "share_of_ceiling": pl.Float64,
    "p_value": pl.Float64,
    "p_adjusted": pl.Float64,
    "tau_b": pl.Float64,
    "std_over_pairs": pl.Float64,
    "unlike": pl.String,
    "reason": pl.String,
}

RESIDUAL_NULL = (
    "residual_null_mean: rho if only what FLOPs explain of latency transfers. Per platform, log "
    "latency is fitted on log FLOPs over the common models, and what the fit leaves is permuted "
    "over the models. residual_p: one-sided against these draws, draws equal to rho count half. "
    "Above 0.05 the agreement is not more than FLOPs explain: conclude from this p-value. The "
    "null of p_value also cuts the link of latency to FLOPs, and is exceeded if FLOPs alone "
    "transfer."
)
_MEANING = (
    "rho: Spearman's, with ranks over the common models of the pair. It is symmetric, so a pair "
    "is listed once.",
    "FRM's null: its rho with latencies permuted on every platform. FLOPs are one of FRM's "
    "three parts and equal on every platform, so FRM correlates even if latency does not "
    "transfer at all; headroom = (rho - null_mean) / (1 - null_mean).",
    RESIDUAL_NULL,
    "ceiling: the highest rho possible given measurement noise; too optimistic if all repeats "
    "come from one session. Table `ceiling` has its parts, and the reason if it is missing. "
    "share_of_ceiling = rho / ceiling.",
    "low to high: 95 % percentile bootstrap over models, from 9 models on.",
    "p_value: of a pair's latency two-sided by permutation (exact up to 8 models), otherwise "
    "one-sided against the null; p_adjusted: Benjamini-Hochberg over the listed pairs of a "
    "measure. If pairs share different models, null_p95 and p_value of the mean are upper "
    "bounds.",
)
_OF_TIERS = (
    "Tier to tier: platforms of different devices at equal batch; mean inside a pair of device "
    "models (a cluster) first, then over clusters; std_over_pairs is the spread of pairs, not an "
    "uncertainty."
)
_NO_TIERS = "Tier to tier: undefined, no two devices were measured at equal batch."
_OF_RUNTIMES = "Runtimes: mean inside a device model (a cluster) first, then over device models."


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The highest rho that noise allows; `None` where it is not known.

    Attributes:
        value: sqrt(reliability of source x reliability of target); of a group, its mean.
        share: rho over the ceiling.
        methods: how the reliabilities of its pairs were found, each text once.
    """

    value: float | None
    share: float | None
    methods: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTransfer:
    """One measure between two groups of platforms.

    Attributes:
        n_ranked: pairs with enough common models for a rho; `n_lacking` of them have no ceiling.
    """

    agreement: GroupAgreement
    ceiling: Ceiling
    n_ranked: int
    n_lacking: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTransfer:
    """One measure between two platforms; a reliability is over their common models."""

    agreement: PairAgreement
    ceiling: Ceiling
    reliability_source: float | None
    reliability_target: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferResult:
    """Rank agreement by latency and by FRM.

    Attributes:
        groups: means over pairs; latency first, then FRM, of one group after the other.
        pairs: those of latency first; empty above `MAX_LISTED_PAIRS` pairs.
        selected: every pair that the selection names.
        n_models: of the panel.
        notes: facts that the reader must know.
    """

    groups: tuple[GroupTransfer, ...]
    pairs: tuple[PairTransfer, ...]
    selected: tuple[Pair, ...]
    draws: Draws
    seed: int
    n_models: int
    notes: tuple[str, ...]


def transfer(session: Session) -> TransferResult:
    """From tier to tier and for every selected pair of platforms; made once a session.

    Raises:
        NoDataError: fewer than two platforms match.
    """
    return session.once(_transfer)


def frameworks(session: Session) -> TransferResult:
    """Between runtimes at equal device, threads, batch and precision; made once a session.

    Raises:
        NoDataError: no device was measured with two runtimes.
    """
    return session.once(_frameworks)


def transfer_table(session: Session) -> Table:
    """Rank transfer from tier to tier and for every pair of platforms, latency and FRM."""
    return transfer_as_table(transfer(session))


def frameworks_table(session: Session) -> Table:
    """Framework invariance: equal device, threads, batch and precision, different runtime."""
    return frameworks_as_table(frameworks(session))


def transfer_as_table(found: TransferResult) -> Table:
    """The result of `transfer`: one row per measure of each group, then of each pair."""
    notes = () if found.groups else (_NO_TIERS,)
    return _as_table("Rank transfer", found, _OF_TIERS, notes)


def frameworks_as_table(found: TransferResult) -> Table:
    """The result of `frameworks`, with the rows of `transfer_as_table`."""
    return _as_table("Framework invariance", found, _OF_RUNTIMES)


def _transfer(session: Session) -> TransferResult:
    pairs = select_pairs(session.panel, session.selection)
    return _result(session, tier_groups(session.panel, pairs), pairs)


def _frameworks(session: Session) -> TransferResult:
    facts = session.panel.platforms.to_dicts()
    same = ("device", "threads", "batch", "precision")
    pairs = [
        (i, j)
        for i, j in select_pairs(session.panel, session.selection)
        if facts[i]["runtime"] != facts[j]["runtime"]
        and all(facts[i][name] == facts[j][name] for name in same)
    ]
    if not pairs:
        raise NoDataError(
            "no device was measured with two runtimes at equal threads, batch and precision",
            "add a runtime to the sweep",
        )
    return _result(session, runtime_groups(session.panel, pairs), pairs)


def _result(session: Session, groups: Sequence[PairGroup], pairs: Sequence[Pair]) -> TransferResult:
    panel, seed = session.panel, session.selection.seed
    found = noises(session)
    listed = pairs if len(pairs) <= MAX_LISTED_PAIRS else ()
    return TransferResult(
        groups=tuple(_of_group(noise, group, seed) for group in groups for noise in found),
        pairs=tuple(one for noise in found for one in _of_pairs(session, noise, listed)),
        selected=tuple(pairs),
        draws=draws_for(pairs),
        seed=seed,
        n_models=len(panel.models),
        notes=(*panel.notes, *incomplete_notes(panel)),
    )


def _of_group(noise: Noise, group: PairGroup, seed: int) -> GroupTransfer:
    """A group's ceiling is the mean of its pairs', weighted as their rho is."""
    agreement = group_agreement(group, noise.measure, seed)
    ceilings = pair_ceilings(noise, group.pairs)
    methods = sorted({method for method in ceilings.methods if method is not None})
    mean = mean_ceiling(ceilings, group.clusters)
    return GroupTransfer(
        agreement=agreement,
        ceiling=_ceiling(agreement.figures.rho, mean, tuple(methods)),
        n_ranked=int(ceilings.has_models.sum()),
        n_lacking=int(np.isnan(ceilings.ceiling[ceilings.has_models]).sum()),
    )


def _of_pairs(session: Session, noise: Noise, pairs: Sequence[Pair]) -> Iterator[PairTransfer]:
    ceilings = pair_ceilings(noise, pairs)
    found = pair_agreements(session.panel, noise.measure, pairs, session.selection.seed)
    for at, agreement in enumerate(found):
        ceiling, method = float(ceilings.ceiling[at]), ceilings.methods[at]
        yield PairTransfer(
            agreement=agreement,
            ceiling=_ceiling(agreement.figures.rho, ceiling, (method,) if method else ()),
            reliability_source=known(ceilings.source[at]),
            reliability_target=known(ceilings.target[at]),
        )


def _ceiling(rho: float | None, value: float, methods: tuple[str, ...]) -> Ceiling:
    share = None if rho is None or np.isnan(value) else rho / value
    return Ceiling(value=known(value), share=share, methods=methods)


def known(value: float) -> float | None:
    """`None` for NaN."""
    return None if np.isnan(value) else float(value)


def _as_table(
    title: str, found: TransferResult, meaning: str, notes_on_groups: tuple[str, ...] = ()
) -> Table:
    draws = found.draws
    is_listed = len(found.selected) <= MAX_LISTED_PAIRS
    notes = (
        *found.notes,
        *(() if is_listed else (unlisted(found.selected),)),
        *notes_on_groups,
        *few_models_warning(found.n_models),
    )
    explanation = (
        meaning,
        *_MEANING,
        f"Seed {found.seed}: {draws.bootstrap} resamples, {draws.permutation} permutations, "
        f"{draws.null} draws of the null, {draws.residual_null} of the residual null.",
        *few_models_note(found.n_models),
    )
    rows = [*map(_row, found.groups), *map(_row, found.pairs)]
    frame = pl.DataFrame(rows, schema=_SCHEMA)
    return Table(title=title, frame=frame, notes=notes, explanation=explanation)


def _row(one: GroupTransfer | PairTransfer) -> Row:
    shares = {"ceiling": one.ceiling.value, "share_of_ceiling": one.ceiling.share}
    return agreement_row(one.agreement) | shares

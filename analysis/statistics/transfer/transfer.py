"""Does a ranking carry over? Between platforms, between tiers, between runtimes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fleetrank.analysis.panel.pair_groups import (
    GroupAgreement,
    PairAgreement,
    PairGroup,
    agreements,
)
from fleetrank.analysis.panel.pairs import Draws, Pair, draws_for
from fleetrank.analysis.panel.panel import incomplete_notes
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.transfer.compared import Compared, by_runtime, by_tier
from fleetrank.analysis.statistics.transfer.noise import (
    PairCeilings,
    group_ceilings,
    mean_ceiling,
    noises,
    pair_ceilings,
)
from fleetrank.analysis.statistics.transfer.within import GroupWithin, within_groups


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
        within: latency among alike models, of one group after the other.
    """

    groups: tuple[GroupTransfer, ...]
    pairs: tuple[PairTransfer, ...]
    selected: tuple[Pair, ...]
    draws: Draws
    seed: int
    n_models: int
    notes: tuple[str, ...]
    within: tuple[GroupWithin, ...] = ()


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


def _transfer(session: Session) -> TransferResult:
    return _result(session, by_tier(session))


def _frameworks(session: Session) -> TransferResult:
    return _result(session, by_runtime(session))


def _result(session: Session, compared: Compared) -> TransferResult:
    panel, seed = session.panel, session.selection.seed
    found = noises(session)
    groups, listed = compared.groups, compared.listed
    of_groups, of_pairs = [], list[PairTransfer]()
    for noise in found:
        means, singles = agreements(panel, groups, listed, noise.measure, seed)
        ceilings = pair_ceilings(noise, listed)
        of_each = group_ceilings(noise, groups, listed, ceilings)
        of_groups.append([_of_group(*one) for one in zip(groups, means, of_each, strict=True)])
        of_pairs += _of_pairs(singles, ceilings)
    return TransferResult(
        groups=tuple(one for group in zip(*of_groups, strict=True) for one in group),
        pairs=tuple(of_pairs),
        selected=compared.pairs,
        draws=draws_for(compared.pairs),
        seed=seed,
        n_models=len(panel.models),
        notes=(*panel.notes, *incomplete_notes(panel)),
        within=within_groups(panel, groups, seed),
    )


def _of_group(group: PairGroup, agreement: GroupAgreement, ceilings: PairCeilings) -> GroupTransfer:
    """A group's ceiling is the mean of its pairs', weighted as their rho is."""
    methods = sorted({method for method in ceilings.methods if method is not None})
    mean = mean_ceiling(ceilings, group.clusters)
    return GroupTransfer(
        agreement=agreement,
        ceiling=_ceiling(agreement.figures.rho, mean, tuple(methods)),
        n_ranked=int(ceilings.has_models.sum()),
        n_lacking=int(np.isnan(ceilings.ceiling[ceilings.has_models]).sum()),
    )


def _of_pairs(found: Sequence[PairAgreement], ceilings: PairCeilings) -> Iterator[PairTransfer]:
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

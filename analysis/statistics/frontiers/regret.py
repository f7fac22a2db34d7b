"""The loss on the target from choosing a model on the source, for groups of pairs."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.pair_groups import Level, tier_groups, unlike_facts
from fleetrank.analysis.panel.pairs import Pair
from fleetrank.analysis.panel.panel import Panel, components, measures
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS, directed_pairs
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.frontiers.pair_regrets import (
    Budgets,
    Positions,
    Regrets,
    Sides,
    pair_regrets,
)


class Form(StrEnum):
    """What a choice by the source can cost on the target."""

    LOST = "accuracy points lost at a latency budget"
    EXTRA = "per cent extra latency at an accuracy floor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Median, 90th percentile and highest regret of some cases, in the unit of their form."""

    median: float
    p90: float
    worst: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RegretCases:
    """Regret over the cases of some pairs; a case is one budget (or floor) of one pair.

    Attributes:
        level: `TIER`, `SOURCE` or `PAIR`.
        source, target: names of tiers or platforms; the target is `None` for every target.
        n_models: fewest common models of a pair.
        regret: over the known cases; `None` without any.
        over_budget_share: share of the known cases in which the first choice exceeds a budget on
            the target; `None` at accuracy floors without a memory budget.
        by_flops: the regret of choosing by FLOPs; `None` if a common model has no FLOPs.
        unlike: facts that differ between the two platforms of a pair.
    """

    level: Level
    source: str
    target: str | None
    form: Form
    n_models: int
    n_pairs: int
    n_cases: int
    n_undefined: int
    regret: Quantiles | None
    over_budget_share: float | None
    by_flops: Quantiles | None
    unlike: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegretResult:
    """Regrets from tier to tier, of each source, and of each pair if these are listed.

    Attributes:
        pairs: columns of the panel, source first.
        is_listed: false if the pairs are too many to list.
    """

    cases: tuple[RegretCases, ...]
    pairs: tuple[Pair, ...]
    is_listed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Pairs that have one figure together, as positions in all pairs."""

    level: Level
    source: str
    target: str | None
    at: Positions
    unlike: str | None = None


def choice_regrets(session: Session, budgets: Budgets) -> RegretResult:
    """The cost on each target of choosing by the figures of each source.

    Raises:
        NoDataError: fewer than two platforms match the selection.
    """
    panel = session.panel
    pairs = directed_pairs(panel, session.selection)
    latency = measures(panel)[0].latency
    sides = Sides(accuracy=panel.accuracy, latency=latency, memory=components(panel)["memory"])
    mine = pair_regrets(sides, pairs, budgets)
    flops = pair_regrets(replace(sides, flops=panel.flops), pairs, budgets)
    is_listed = len(pairs) <= MAX_LISTED_PAIRS
    groups = _groups(panel, pairs, is_listed=is_listed)
    cases = tuple(one for group in groups for one in _cases(mine, flops, group))
    return RegretResult(cases=cases, pairs=tuple(pairs), is_listed=is_listed)


def _groups(panel: Panel, pairs: Sequence[Pair], *, is_listed: bool) -> Iterator[_Group]:
    position = {pair: at for at, pair in enumerate(pairs)}
    for tiers in tier_groups(panel, pairs, is_directed=True):
        at = np.array([position[pair] for pair in tiers.pairs])
        yield _Group(level=Level.TIER, source=tiers.source, target=tiers.target, at=at)
    by_source: dict[int, list[int]] = defaultdict(list)
    for number, (i, _) in enumerate(pairs):
        by_source[i].append(number)
    for i, mine in by_source.items():
        yield _Group(level=Level.SOURCE, source=panel.keys[i], target=None, at=np.array(mine))
    facts = panel.platforms.to_dicts()
    for number, (i, j) in enumerate(pairs if is_listed else ()):
        yield _Group(
            level=Level.PAIR,
            source=panel.keys[i],
            target=panel.keys[j],
            at=np.array([number]),
            unlike=unlike_facts(facts[i], facts[j]),
        )


def _cases(mine: Regrets, flops: Regrets, group: _Group) -> Iterator[RegretCases]:
    at = group.at
    for form, cases, by_flops, is_over in (
        (Form.LOST, mine.lost[:, at], flops.lost[:, at], mine.is_over),
        (Form.EXTRA, 100 * mine.extra[:, at], 100 * flops.extra[:, at], mine.is_too_large),
    ):
        known = np.isfinite(cases)
        yield RegretCases(
            level=group.level,
            source=group.source,
            target=group.target,
            form=form,
            n_models=int(mine.n_models[at].min()),
            n_pairs=at.size,
            n_cases=int(known.sum()),
            n_undefined=int((~known).sum()),
            regret=_quantiles(cases[known]),
            over_budget_share=_share(is_over[:, at]),
            by_flops=_quantiles(by_flops[np.isfinite(by_flops)]),
            unlike=group.unlike,
        )


def _share(values: Floats) -> float | None:
    """The mean of those that are known."""
    return float(np.nanmean(values)) if np.isfinite(values).any() else None


def _quantiles(cases: Floats) -> Quantiles | None:
    found = np.quantile(cases, (0.5, 0.9, 1)).tolist() if cases.size else None
    return found and Quantiles(median=found[0], p90=found[1], worst=found[2])

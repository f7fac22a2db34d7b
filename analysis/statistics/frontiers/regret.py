"""The loss on the target from choosing a model on the source.

Arrays of latency are (n_models, n_pairs), smaller is better, those of accuracy (n_models,).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from scipy import stats

from fleetrank.analysis.arrays.ranking import Floats, require_finite
from fleetrank.analysis.panel.pair_groups import Level, tier_groups, unlike_facts
from fleetrank.analysis.panel.pairs import Block, Pair, blocks
from fleetrank.analysis.panel.panel import Panel, measures
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS, directed_pairs
from fleetrank.analysis.panel.session import Session

QUARTILES = (0.25, 0.5, 0.75)
"""Default budgets: quantiles of the common models' latencies on the target, or accuracies."""
_MAX_VALUES = 2_000_000
"""Models x pairs processed at once: 16 MB an array."""

Positions = npt.NDArray[np.int64]


class Form(StrEnum):
    """What a choice by the source can cost on the target."""

    LOST = "accuracy points lost at a latency budget"
    EXTRA = "per cent extra latency at an accuracy floor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The user's budgets and floors; `None` means quartiles.

    Attributes:
        latency: at most this latency on the target, in the unit of the latencies.
        accuracy: at least this accuracy, in its own unit.
    """

    latency: tuple[float, ...] | None = None
    accuracy: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Regrets:
    """Regret at every budget or floor, (n_budgets, n_pairs); NaN is undefined.

    Attributes:
        n_models: models that both platforms have, with an accuracy, (n_pairs,).
        lost: accuracy lost at a latency budget.
        is_over: 1 if the source's first choice exceeds the target's budget, else 0.
        extra: latency in excess at an accuracy floor, as a share.
    """

    n_models: Positions
    lost: Floats
    is_over: Floats
    extra: Floats


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
        over_budget_share: share of the known budgets that the first choice exceeds; `None` for
            accuracy floors.
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
    mine = pair_regrets(panel.accuracy, latency, pairs, budgets)
    flops = pair_regrets(panel.accuracy, latency, pairs, budgets, flops=panel.flops)
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
    at, is_over = group.at, mine.is_over[:, group.at]
    over_share = float(np.nanmean(is_over)) if np.isfinite(is_over).any() else None
    for form, cases, by_flops in (
        (Form.LOST, mine.lost[:, at], flops.lost[:, at]),
        (Form.EXTRA, 100 * mine.extra[:, at], 100 * flops.extra[:, at]),
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
            over_budget_share=over_share if form is Form.LOST else None,
            by_flops=_quantiles(by_flops[np.isfinite(by_flops)]),
            unlike=group.unlike,
        )


def _quantiles(cases: Floats) -> Quantiles | None:
    found = np.quantile(cases, (0.5, 0.9, 1)).tolist() if cases.size else None
    return found and Quantiles(median=found[0], p90=found[1], worst=found[2])


def accuracy_lost(
    accuracy: Floats, source_ranks: Floats, target: Floats, budget: Floats
) -> tuple[Floats, Floats]:
    """Accuracy lost at a latency budget (n_pairs,) on the target, and whether it is exceeded.

    `source_ranks` count from 1, equal latencies share the lowest. If k models are within the budget
    on the target, the k fastest on the source (and models tied with the last of them) are selected.
    Lost is the best accuracy within the budget minus the best accuracy of the selected models
    within it. The first choice is the most accurate selected model; it is over the budget if no
    equally accurate one is within it. NaN if no model, or no selected model, is within the budget.
    """
    for values in (accuracy, source_ranks, target, budget):
        require_finite(values)
    keeps = target <= budget
    count = keeps.sum(axis=0)
    is_in = source_ranks <= count
    best = _best(accuracy, keeps)
    found = _best(accuracy, is_in & keeps)
    first = _best(accuracy, is_in)
    is_known = np.isfinite(first)
    return best - found, np.where(is_known, ~(found >= first), np.nan)


def extra_latency(accuracy: Floats, source: Floats, target: Floats, floor: float) -> Floats:
    """Latency in excess at an accuracy of at least `floor`, as a share, (n_pairs,).

    The choice is the fastest on the source that is accurate enough (of tied models the more
    accurate, then the earlier row); it is compared with the fastest on the target. NaN where no
    model is accurate enough.
    """
    for values in (accuracy, source, target):
        require_finite(values)
    enough = np.flatnonzero(accuracy >= floor)
    if not enough.size:
        return np.full(target.shape[1], np.nan)
    enough = enough[np.argsort(-accuracy[enough], kind="stable")]
    chosen = enough[source[enough].argmin(axis=0)]
    excess: Floats = target[chosen, np.arange(target.shape[1])] / target[enough].min(axis=0) - 1
    return excess


def pair_regrets(
    accuracy: Floats,
    latency: Floats,
    pairs: Sequence[Pair],
    budgets: Budgets,
    *,
    flops: Floats | None = None,
) -> Regrets:
    """Regrets over the common models of each pair; NaN without any.

    `latency` is (n_models, n_platforms), NaN where missing. With `flops` (n_models,) these choose
    instead of the source, among the same models; a pair that lacks some is then undefined.
    """
    lost = np.full((len(budgets.latency or QUARTILES), len(pairs)), np.nan)
    extra = np.full((len(budgets.accuracy or QUARTILES), len(pairs)), np.nan)
    n_models = np.zeros(len(pairs), dtype=np.int64)
    found = Regrets(n_models=n_models, lost=lost, is_over=lost.copy(), extra=extra)
    present = np.isfinite(latency) & np.isfinite(accuracy)[:, None]
    step = max(1, _MAX_VALUES // accuracy.size)
    for start in range(0, len(pairs), step):
        for block in blocks(present, pairs[start : start + step]):
            where = start + block.where
            found.n_models[where] = block.models.size
            values = latency[np.ix_(block.models, block.columns)]
            chooser = values if flops is None else flops[block.models, None] + 0 * values
            if block.models.size and np.isfinite(chooser).all():
                some = _block_regrets(accuracy[block.models], chooser, values, block, budgets)
                found.lost[:, where], found.is_over[:, where] = some.lost, some.is_over
                found.extra[:, where] = some.extra
    return found


def _block_regrets(
    accuracy: Floats, chooser: Floats, latency: Floats, block: Block, budgets: Budgets
) -> Regrets:
    # Ranked once per platform, not once per pair.
    ranks = stats.rankdata(chooser, method="min", axis=0).astype(np.float64)[:, block.source]
    source, target = chooser[:, block.source], latency[:, block.target]
    floors = np.quantile(accuracy, QUARTILES) if budgets.accuracy is None else budgets.accuracy
    by_budget = [
        accuracy_lost(accuracy, ranks, target, budget[block.target])
        for budget in _latency_budgets(latency, budgets)
    ]
    return Regrets(
        n_models=np.full(block.where.size, block.models.size),
        lost=np.array([lost for lost, _ in by_budget]),
        is_over=np.array([is_over for _, is_over in by_budget]),
        extra=np.array([extra_latency(accuracy, source, target, float(one)) for one in floors]),
    )


def _latency_budgets(latency: Floats, budgets: Budgets) -> list[Floats]:
    """One budget of each platform, (n_platforms,), for every budget or quartile."""
    if budgets.latency is None:
        return list(np.quantile(latency, QUARTILES, axis=0))
    return [np.full(latency.shape[1], one) for one in budgets.latency]


def _best(accuracy: Floats, mask: npt.NDArray[np.bool_]) -> Floats:
    """Highest accuracy of the models in (n_models, n_pairs); NaN without any."""
    best = np.where(mask, accuracy[:, None], -np.inf).max(axis=0)
    return np.where(np.isfinite(best), best, np.nan)

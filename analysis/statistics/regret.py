"""The loss on the target from choosing a model on the source, for groups of pairs."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import known, known_mean
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.conditions import (
    Between,
    Level,
    Pair,
    directed_pairs,
    sampled,
    tier_groups,
)
from fleetrank.analysis.panel.draws import Block, blocks
from fleetrank.analysis.panel.panel import Panel, measures
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.vocabulary import NS_PER_MS

# Regret of each pair of platforms: what choosing by the source's figures costs on the target.
#
# Arrays of latency are (n_models, n_pairs), smaller is better, those of accuracy (n_models,).

QUARTILES = (0.25, 0.5, 0.75)
"""Default budgets: quantiles of the common models' latencies on the target, or accuracies."""
_MAX_VALUES = 2_000_000
"""Models x pairs processed at once: 16 MB an array."""

Positions = npt.NDArray[np.int64]


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
        is_over: 1 if the source's first choice exceeds a budget on the target, else 0.
        extra: latency in excess at an accuracy floor, as a share.
    """

    n_models: Positions
    lost: Floats
    is_over: Floats
    extra: Floats


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
    _refuse_nan(accuracy, source_ranks, target, budget)
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
    _refuse_nan(accuracy, source, target)
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
    flops: Floats | None = None,
) -> Regrets:
    """Regrets over the common models of each pair; NaN without any.

    Args:
        accuracy: (n_models,), NaN where missing.
        latency: (n_models, n_platforms), NaN where missing.
        pairs: columns, source first.
        budgets: the same for all pairs.
        flops: (n_models,); these choose instead of the source. A pair of which a common model lacks
            them is undefined.
    """
    n_budgets, n_floors = (len(one or QUARTILES) for one in (budgets.latency, budgets.accuracy))
    found = Regrets(
        n_models=np.zeros(len(pairs), dtype=np.int64),
        lost=np.full((n_budgets, len(pairs)), np.nan),
        is_over=np.full((n_budgets, len(pairs)), np.nan),
        extra=np.full((n_floors, len(pairs)), np.nan),
    )
    present = np.isfinite(latency) & np.isfinite(accuracy)[:, None]
    step = max(1, _MAX_VALUES // accuracy.size)
    for start in range(0, len(pairs), step):
        for block in blocks(present, pairs[start : start + step]):
            found.n_models[start + block.where] = block.models.size
            mine = latency[np.ix_(block.models, block.columns)]
            chooser = mine if flops is None else flops[block.models, None] + 0 * mine
            if block.models.size and np.isfinite(chooser).all():
                _fill(found, accuracy[block.models], (chooser, mine), block, budgets, start)
    return found


def _fill(
    found: Regrets,
    accuracy: Floats,
    sides: tuple[Floats, Floats],
    block: Block,
    budgets: Budgets,
    start: int,
) -> None:
    """Regrets of a block; `sides` are what the chooser knows, and the latencies."""
    chooser, latency = sides
    where = start + block.where
    # Ranked once per platform, not once per pair.
    ranks = np.column_stack([1.0 + np.searchsorted(np.sort(one), one) for one in chooser.T])
    source, target = chooser[:, block.source], latency[:, block.target]
    limits = (
        np.quantile(latency, QUARTILES, axis=0)
        if budgets.latency is None
        else np.repeat(np.array(budgets.latency)[:, None], latency.shape[1], axis=1)
    )
    floors = np.quantile(accuracy, QUARTILES) if budgets.accuracy is None else budgets.accuracy
    for at, limit in enumerate(limits):
        found.lost[at, where], found.is_over[at, where] = accuracy_lost(
            accuracy, ranks[:, block.source], target, limit[block.target]
        )
    for at, floor in enumerate(floors):
        found.extra[at, where] = extra_latency(accuracy, source, target, float(floor))


def _best(accuracy: Floats, mask: npt.NDArray[np.bool_]) -> Floats:
    """Highest accuracy of the models in (n_models, n_pairs); NaN without any."""
    best = np.where(mask, accuracy[:, None], -np.inf).max(axis=0)
    return np.where(np.isfinite(best), best, np.nan)


def _refuse_nan(*arrays: Floats) -> None:
    if any(np.isnan(values).any() for values in arrays):
        raise ValueError("values have NaN")


EVERY_TARGET = "every target"
_LIMITS = ("budgets_ms", "floors_percent")


class Form(StrEnum):
    """What a choice by the source can cost on the target."""

    LOST = "accuracy points lost at a latency budget"
    EXTRA = "per cent extra latency at an accuracy floor"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegretCases(Between):
    """Regret over the cases of some pairs; a case is one budget (or floor) of one pair.

    Attributes:
        level: `TIER` or `SOURCE`.
        source, target: names of tiers, or of a platform and `EVERY_TARGET`.
        n_models: fewest common models of a pair.
        median, p90, worst: over the known cases, in the unit of the form; `None` without any.
        over_budget_share: share of the known cases in which the first choice exceeds a budget on
            the target; `None` at accuracy floors.
        flops_median, flops_p90, flops_worst: of choosing by FLOPs; `None` if a common model has no
            FLOPs.
    """

    form: Form
    n_models: int
    n_pairs: int
    n_cases: int
    n_undefined: int
    median: float | None
    p90: float | None
    worst: float | None
    over_budget_share: float | None
    flops_median: float | None
    flops_p90: float | None
    flops_worst: float | None
    reason: str | None


def regret_table(session: Session) -> Table:
    """Median, 90th percentile and worst regret from tier to tier, and of each source.

    Settings `budgets_ms` and `floors_percent`: numbers separated by commas; quartiles of the
    target's latencies and of the accuracies by default.

    Raises:
        NoDataError: fewer than two platforms match the selection.
    """
    latencies, floors = (_numbers(session.selection, name) for name in _LIMITS)
    budgets = Budgets(
        latency=tuple(one * NS_PER_MS for one in latencies) or None, accuracy=floors or None
    )
    panel = session.panel
    pairs = directed_pairs(panel, session.selection)
    mine, by_flops = (
        pair_regrets(panel.accuracy, measures(panel)[0].latency, pairs, budgets, flops)
        for flops in (None, panel.flops)
    )
    lacking = [panel.models[row] for row in np.flatnonzero(np.isnan(panel.accuracy))]
    return Table.of(
        RegretCases,
        [one for group in _groups(panel, pairs) for one in _cases(mine, by_flops, *group)],
        title="Regret of choosing on another device",
        notes=(
            *panel.notes,
            *sampled(session, len(pairs)),
            *((f"Dropped, no accuracy: {', '.join(lacking)}.",) if lacking else ()),
        ),
        explanation=(
            _stated(
                "Latency budgets", latencies, "ms", "the common models' latencies on the target"
            ),
            _stated("Accuracy floors", floors, "%", "the common models' accuracies"),
            *explained("frontier/regret"),
        ),
    )


def _groups(panel: Panel, pairs: Sequence[Pair]) -> Iterator[tuple[Between, Positions]]:
    """What has one figure together, and the positions of its pairs in all pairs."""
    position = {pair: at for at, pair in enumerate(pairs)}
    for tiers in tier_groups(panel, pairs, is_directed=True):
        between = Between(level=Level.TIER, source=tiers.source, target=tiers.target)
        yield between, np.array([position[pair] for pair in tiers.pairs])
    by_source: dict[int, list[int]] = defaultdict(list)
    for number, (i, _) in enumerate(pairs):
        by_source[i].append(number)
    for i, mine in by_source.items():
        between = Between(level=Level.SOURCE, source=panel.keys[i], target=EVERY_TARGET)
        yield between, np.array(mine)


def _cases(
    mine: Regrets, by_flops: Regrets, between: Between, at: Positions
) -> Iterator[RegretCases]:
    no_budget = np.full(1, np.nan)
    for form, cases, flops_cases, over in (
        (Form.LOST, mine.lost[:, at], by_flops.lost[:, at], mine.is_over[:, at]),
        (Form.EXTRA, 100 * mine.extra[:, at], 100 * by_flops.extra[:, at], no_budget),
    ):
        is_known = np.isfinite(cases)
        median, p90, worst = _quantiles(cases[is_known])
        flops = _quantiles(flops_cases[np.isfinite(flops_cases)])
        reason = None
        if median is None:
            reason = "no common model with an accuracy is within the budget or reaches the floor"
        elif flops[0] is None:
            reason = "no FLOPs baseline: a common model has no FLOPs"
        yield RegretCases(
            level=between.level,
            source=between.source,
            target=between.target,
            form=form,
            n_models=int(mine.n_models[at].min()),
            n_pairs=at.size,
            n_cases=int(is_known.sum()),
            n_undefined=int((~is_known).sum()),
            median=median,
            p90=p90,
            worst=worst,
            over_budget_share=known(known_mean(over.ravel(), 0)),
            flops_median=flops[0],
            flops_p90=flops[1],
            flops_worst=flops[2],
            reason=reason,
        )


def _quantiles(cases: Floats) -> tuple[float | None, float | None, float | None]:
    """Median, 90th percentile and highest regret."""
    if not cases.size:
        return None, None, None
    median, p90, worst = np.quantile(cases, (0.5, 0.9, 1)).tolist()
    return median, p90, worst


def _numbers(selection: Selection, name: str) -> tuple[float, ...]:
    """The user's numbers; empty without any."""
    text = setting(selection, name, "")
    try:
        numbers = tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        numbers = (math.nan,)
    if all(math.isfinite(one) and one > 0 for one in numbers):
        return numbers
    raise AnalysisError(
        f"{name}={text} must be numbers above 0", f"such as `set {name}=10` or `set {name}=10,50`"
    )


def _stated(what: str, given: Sequence[float], unit: str, whose: str) -> str:
    if given:
        return f"{what}: {', '.join(f'{one:g}' for one in given)} {unit}, as given."
    return f"{what}: the quartiles (25, 50, 75 %) of {whose}."

"""The loss on the target from choosing a model on the source, for groups of pairs."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.conditions import (
    MAX_LISTED_PAIRS,
    Between,
    Level,
    Pair,
    directed_pairs,
    tier_groups,
    unlike_facts,
    unlisted,
)
from fleetrank.analysis.panel.draws import Block, blocks
from fleetrank.analysis.panel.panel import Panel, components, measures
from fleetrank.analysis.panel.session import Session, once_a_session
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.vocabulary import BYTES_PER_MIB, NS_PER_MS

# Regret of each pair of platforms: what choosing by the source's figures costs on the target.
#
# Arrays of latency are (n_models, n_pairs), smaller is better, those of accuracy (n_models,). An
# infinite latency is that of a model which exceeds the memory budget there.

QUARTILES = (0.25, 0.5, 0.75)
"""Default budgets: quantiles of the common models' latencies on the target, or accuracies."""
_MAX_VALUES = 2_000_000
"""Models x pairs processed at once: 16 MB an array."""

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The user's budgets and floors; `None` means quartiles, for memory no budget.

    Attributes:
        latency: at most this latency on the target, in the unit of the latencies.
        accuracy: at least this accuracy, in its own unit.
        memory: at most this peak memory, in the unit of the memory; each one is combined with each
            latency budget and each accuracy floor.
    """

    latency: tuple[float, ...] | None = None
    accuracy: tuple[float, ...] | None = None
    memory: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What is known of the models; NaN where missing.

    Attributes:
        accuracy: (n_models,).
        latency, memory: (n_models, n_platforms). A model without a memory exceeds every budget.
        flops: (n_models,); these choose instead of the source, which then says nothing about
            memory either.
    """

    accuracy: Floats
    latency: Floats
    memory: Floats
    flops: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Regrets:
    """Regret at every budget or floor, (n_budgets, n_pairs); NaN is undefined.

    Attributes:
        n_models: models that both platforms have, with an accuracy, (n_pairs,).
        lost: accuracy lost at a latency budget.
        is_over: 1 if the source's first choice exceeds a budget on the target, else 0.
        extra: latency in excess at an accuracy floor, as a share.
        is_too_large: 1 if the source's choice at a floor exceeds the target's memory budget, else
            0; all NaN without a memory budget.
    """

    n_models: Positions
    lost: Floats
    is_over: Floats
    extra: Floats
    is_too_large: Floats


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
    model is accurate enough, or all of them have an infinite latency on one side; infinite where
    the choice has an infinite latency on the target.
    """
    _refuse_nan(accuracy, source, target)
    enough = np.flatnonzero(accuracy >= floor)
    if not enough.size:
        return np.full(target.shape[1], np.nan)
    enough = enough[np.argsort(-accuracy[enough], kind="stable")]
    pair = np.arange(target.shape[1])
    chosen = enough[source[enough].argmin(axis=0)]
    fastest = target[enough].min(axis=0)
    excess = target[chosen, pair] / np.where(np.isinf(fastest), np.nan, fastest) - 1
    return np.where(np.isinf(source[chosen, pair]), np.nan, excess)


def pair_regrets(sides: Sides, pairs: Sequence[Pair], budgets: Budgets) -> Regrets:
    """Regrets over the common models of each pair; NaN without any.

    With FLOPs, a pair of which a common model lacks them is undefined.
    """
    found = _undefined(budgets, len(pairs))
    present = np.isfinite(sides.latency) & np.isfinite(sides.accuracy)[:, None]
    step = max(1, _MAX_VALUES // sides.accuracy.size)
    for start in range(0, len(pairs), step):
        for block in blocks(present, pairs[start : start + step]):
            where = start + block.where
            found.n_models[where] = block.models.size
            mine = _of_block(sides, block)
            if block.models.size and np.isfinite(mine.chooser).all():
                some = [
                    _block_regrets(mine, block, budgets, limit)
                    for limit in budgets.memory or (math.inf,)
                ]
                found.lost[:, where] = np.concatenate([one.lost for one in some])
                found.is_over[:, where] = np.concatenate([one.is_over for one in some])
                found.extra[:, where] = extra = np.concatenate([one.extra for one in some])
                if budgets.memory:
                    is_known = ~np.isnan(extra)
                    found.is_too_large[:, where] = np.where(is_known, np.isinf(extra), np.nan)
    return found


def _undefined(budgets: Budgets, n_pairs: int) -> Regrets:
    n_limits = len(budgets.memory or (None,))
    lost = np.full((n_limits * len(budgets.latency or QUARTILES), n_pairs), np.nan)
    extra = np.full((n_limits * len(budgets.accuracy or QUARTILES), n_pairs), np.nan)
    return Regrets(
        n_models=np.zeros(n_pairs, dtype=np.int64),
        lost=lost,
        is_over=lost.copy(),
        extra=extra,
        is_too_large=extra.copy(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Values of the block's models on its platforms, (n_models, n_platforms) but for accuracy.

    Attributes:
        chooser, chooser_memory: what a user of the source knows.
    """

    accuracy: Floats
    chooser: Floats
    chooser_memory: Floats
    latency: Floats
    memory: Floats


def _of_block(sides: Sides, block: Block) -> _Block:
    grid = np.ix_(block.models, block.columns)
    latency, memory = sides.latency[grid], sides.memory[grid]
    flops = None if sides.flops is None else sides.flops[block.models, None] + 0 * latency
    return _Block(
        accuracy=sides.accuracy[block.models],
        chooser=latency if flops is None else flops,
        chooser_memory=memory if flops is None else 0 * latency,
        latency=latency,
        memory=memory,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Some:
    """Parts of `Regrets` for the pairs of a block at one memory budget."""

    lost: Floats
    is_over: Floats
    extra: Floats


def _block_regrets(mine: _Block, block: Block, budgets: Budgets, limit: float) -> _Some:
    accuracy = mine.accuracy
    chooser = _within(mine.chooser, mine.chooser_memory, limit)
    latency = _within(mine.latency, mine.memory, limit)
    # Ranked once per platform, not once per pair.
    ranks = np.column_stack([1.0 + np.searchsorted(np.sort(one), one) for one in chooser.T])
    ranks = np.where(np.isinf(chooser), np.inf, ranks)[:, block.source]
    source, target = chooser[:, block.source], latency[:, block.target]
    floors = np.quantile(accuracy, QUARTILES) if budgets.accuracy is None else budgets.accuracy
    by_budget = [
        accuracy_lost(accuracy, ranks, target, budget[block.target])
        for budget in _latency_budgets(mine.latency, budgets)
    ]
    return _Some(
        lost=np.array([lost for lost, _ in by_budget]),
        is_over=np.array([is_over for _, is_over in by_budget]),
        extra=np.array([extra_latency(accuracy, source, target, float(one)) for one in floors]),
    )


def _within(values: Floats, memory: Floats, limit: float) -> Floats:
    """The values of models within a memory budget, infinite for the others."""
    if math.isinf(limit):
        return values
    return np.where(memory <= limit, values, np.inf)


def _latency_budgets(latency: Floats, budgets: Budgets) -> list[Floats]:
    """One budget of each platform, (n_platforms,), for every budget or quartile."""
    if budgets.latency is None:
        return list(np.quantile(latency, QUARTILES, axis=0))
    return [np.full(latency.shape[1], one) for one in budgets.latency]


def _best(accuracy: Floats, mask: npt.NDArray[np.bool_]) -> Floats:
    """Highest accuracy of the models in (n_models, n_pairs); NaN without any."""
    best = np.where(mask, accuracy[:, None], -np.inf).max(axis=0)
    return np.where(np.isfinite(best), best, np.nan)


def _refuse_nan(*arrays: Floats) -> None:
    if any(np.isnan(values).any() for values in arrays):
        raise ValueError("values have NaN")


EVERY_TARGET = "every target"
_LIMITS = ("budgets_ms", "floors_percent", "budgets_mib")


class Form(StrEnum):
    """What a choice by the source can cost on the target."""

    LOST = "accuracy points lost at a latency budget"
    EXTRA = "per cent extra latency at an accuracy floor"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegretCases(Between):
    """Regret over the cases of some pairs; a case is one budget (or floor) of one pair.

    Attributes:
        level: `TIER`, `SOURCE` or `PAIR`.
        source, target: names of tiers or platforms, or `EVERY_TARGET`.
        n_models: fewest common models of a pair.
        median, p90, worst: over the known cases, in the unit of the form; `None` without any.
        over_budget_share: share of the known cases in which the first choice exceeds a budget on
            the target; `None` at accuracy floors without a memory budget.
        flops_median, flops_p90, flops_worst: of choosing by FLOPs; `None` if a common model has no
            FLOPs.
        unlike: facts that differ between the two platforms of a pair.
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
    unlike: str | None
    reason: str | None


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
    target: str
    at: Positions
    unlike: str | None = None


@once_a_session
def regrets(session: Session) -> RegretResult:
    """The cost on each target of choosing by the figures of each source; made once a session.

    Settings `budgets_ms` and `floors_percent`: numbers separated by commas; quartiles of the
    target's latencies and of the accuracies by default. `budgets_mib`: also limits the memory of
    every choice; there is none by default.

    Raises:
        NoDataError: fewer than two platforms match the selection.
    """
    latencies, floors, limits = (_numbers(session.selection, name) for name in _LIMITS)
    budgets = Budgets(
        latency=tuple(one * NS_PER_MS for one in latencies) or None,
        accuracy=floors or None,
        memory=tuple(one * BYTES_PER_MIB for one in limits) or None,
    )
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
        yield _Group(
            level=Level.SOURCE, source=panel.keys[i], target=EVERY_TARGET, at=np.array(mine)
        )
    facts = panel.platforms.to_dicts()
    for number, (i, j) in enumerate(pairs if is_listed else ()):
        yield _Group(
            level=Level.PAIR,
            source=panel.keys[i],
            target=panel.keys[j],
            at=np.array([number]),
            unlike=unlike_facts(facts[i], facts[j]),
        )


def _cases(mine: Regrets, by_flops: Regrets, group: _Group) -> Iterator[RegretCases]:
    at = group.at
    for form, cases, flops_cases, is_over in (
        (Form.LOST, mine.lost[:, at], by_flops.lost[:, at], mine.is_over),
        (Form.EXTRA, 100 * mine.extra[:, at], 100 * by_flops.extra[:, at], mine.is_too_large),
    ):
        known = np.isfinite(cases)
        median, p90, worst = _quantiles(cases[known])
        flops = _quantiles(flops_cases[np.isfinite(flops_cases)])
        reason = None
        if median is None:
            reason = "no common model with an accuracy is within the budget or reaches the floor"
        elif flops[0] is None:
            reason = "no FLOPs baseline: a common model has no FLOPs"
        over = is_over[:, at]
        yield RegretCases(
            level=group.level,
            source=group.source,
            target=group.target,
            form=form,
            n_models=int(mine.n_models[at].min()),
            n_pairs=at.size,
            n_cases=int(known.sum()),
            n_undefined=int((~known).sum()),
            median=median,
            p90=p90,
            worst=worst,
            over_budget_share=float(np.nanmean(over)) if np.isfinite(over).any() else None,
            flops_median=flops[0],
            flops_p90=flops[1],
            flops_worst=flops[2],
            unlike=group.unlike,
            reason=reason,
        )


def _quantiles(cases: Floats) -> tuple[float | None, float | None, float | None]:
    """Median, 90th percentile and highest regret."""
    if not cases.size:
        return None, None, None
    median, p90, worst = np.quantile(cases, (0.5, 0.9, 1)).tolist()
    return median, p90, worst


def regret_table(session: Session) -> Table:
    """Median, 90th percentile and worst regret from tier to tier, by source, and by pair.

    The settings are those of `regrets`.
    """
    panel, found = session.panel, regrets(session)
    latencies, floors, limits = (_numbers(session.selection, name) for name in _LIMITS)
    lacking = [panel.models[row] for row in np.flatnonzero(np.isnan(panel.accuracy))]
    return Table.of(
        RegretCases,
        found.cases,
        title="Regret of choosing on another device",
        notes=(
            *panel.notes,
            *(() if found.is_listed else (unlisted(found.pairs, session),)),
            *((f"Dropped, no accuracy: {', '.join(lacking)}.",) if lacking else ()),
            *_without_memory(panel, limits),
        ),
        explanation=(
            _stated(
                "Latency budgets", latencies, "ms", "the common models' latencies on the target"
            ),
            _stated("Accuracy floors", floors, "%", "the common models' accuracies"),
            *((_stated("Memory budgets", limits, "MiB", ""),) if limits else ()),
            *(explained("frontier/memory") if limits else ()),
            *explained("frontier/regret"),
        ),
    )


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


def _without_memory(panel: Panel, limits: Sequence[float]) -> tuple[str, ...]:
    """How many values are without a memory, where a budget needs it."""
    is_measured = np.isfinite(panel.latency)
    n = int((is_measured & np.isnan(components(panel)["memory"])).sum())
    if not n or not limits:
        return ()
    return (
        f"{n} of {int(is_measured.sum())} values have no peak memory and do not qualify within a "
        "memory budget.",
    )

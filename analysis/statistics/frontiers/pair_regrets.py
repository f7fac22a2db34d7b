"""Regret of each pair of platforms: what choosing by the source's figures costs on the target.

Arrays of latency are (n_models, n_pairs), smaller is better, those of accuracy (n_models,). An
infinite latency is that of a model which exceeds the memory budget there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.pairs import Block, Pair, blocks

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
    ranks = stats.rankdata(chooser, method="min", axis=0).astype(np.float64)
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

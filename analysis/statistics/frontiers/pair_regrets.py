"""Regret of each pair of platforms: what choosing by the source's figures costs on the target.

Arrays of latency are (n_models, n_pairs), smaller is better, those of accuracy (n_models,).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.conditions import Pair
from fleetrank.analysis.panel.draws import PairBlock, blocks

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
    block: PairBlock,
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

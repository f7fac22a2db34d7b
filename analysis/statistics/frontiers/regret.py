"""The loss on the target from choosing a model on the source, on arrays.

Latencies are (n_models, n_pairs), smaller is better; accuracy is (n_models,), larger is better.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from fleetrank.analysis.arrays.ranking import Floats, require_finite
from fleetrank.analysis.panel.pairs import Block, Pair, blocks

QUARTILES = (0.25, 0.5, 0.75)
"""Default budgets: quantiles of the common models' latencies on the target, or accuracies."""
_MAX_VALUES = 2_000_000
"""Models x pairs processed at once: 16 MB an array."""


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
        lost: accuracy lost at a latency budget.
        is_over: 1 if the source's first choice exceeds the target's budget, else 0.
        extra: latency in excess at an accuracy floor, as a share.
    """

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
    n_budgets = len(budgets.latency or QUARTILES), len(budgets.accuracy or QUARTILES)
    found = Regrets(
        lost=np.full((n_budgets[0], len(pairs)), np.nan),
        is_over=np.full((n_budgets[0], len(pairs)), np.nan),
        extra=np.full((n_budgets[1], len(pairs)), np.nan),
    )
    present = np.isfinite(latency) & np.isfinite(accuracy)[:, None]
    step = max(1, _MAX_VALUES // accuracy.size)
    for start in range(0, len(pairs), step):
        for block in blocks(present, pairs[start : start + step]):
            values = latency[np.ix_(block.models, block.columns)]
            chooser = values if flops is None else flops[block.models, None] + 0 * values
            if block.models.size and np.isfinite(chooser).all():
                some = _block_regrets(accuracy[block.models], chooser, values, block, budgets)
                where = start + block.where
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
        lost=np.array([lost for lost, _ in by_budget]),
        is_over=np.array([is_over for _, is_over in by_budget]),
        extra=np.array([extra_latency(accuracy, source, target, float(one)) for one in floors]),
    )


def _latency_budgets(latency: Floats, budgets: Budgets) -> Iterator[Floats]:
    """Yields the columns one after the other, (n_platforms,) each."""
    if budgets.latency is None:
        yield from np.quantile(latency, QUARTILES, axis=0)
    else:
        yield from (np.full(latency.shape[1], one) for one in budgets.latency)


def _best(accuracy: Floats, mask: npt.NDArray[np.bool_]) -> Floats:
    """Highest accuracy of the models in (n_models, n_pairs); NaN without any."""
    best = np.where(mask, accuracy[:, None], -np.inf).max(axis=0)
    return np.where(np.isfinite(best), best, np.nan)

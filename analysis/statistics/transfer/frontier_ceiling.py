"""How well a platform's accuracy-latency frontier predicts itself under measured noise."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fleetrank.analysis.arrays.bootstrap import resampled_medians
from fleetrank.analysis.arrays.pareto import Mask, frontier, overlap
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, require_finite
from fleetrank.analysis.arrays.reliability import MIN_REPEATS_TO_SPLIT
from fleetrank.analysis.panel.pair_groups import Level, unlike_facts
from fleetrank.analysis.panel.pairs import Block, Pair, blocks
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.repeats import Repeats
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.transfer.noise import (
    FEW_PLATFORMS,
    UNLIKE_STATISTICS,
    Rows,
    platform_rng,
)
from fleetrank.analysis.stored.latency_statistic import STATISTIC, are_unlike
from fleetrank.foundation.wording import count_of

_MEASURES = ("frontier_precision", "frontier_recall")
OwnOverlap = Callable[[bytes, int], tuple[float, float]]
"""`frontier_overlap` of row numbers of models as bytes, and a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierCeiling:
    """Precision or recall of frontiers, and the highest that noise allows; `None` has its `reason`.

    Attributes:
        target: `None` for a platform's own frontier, of which `value` is the figure.
        own_source, own_target: each platform's own figure over the common models.
        ceiling: their geometric mean.
        share: the figure over the ceiling.
        unlike: facts that differ and change the meaning of the figure.
    """

    measure: str
    source: str
    n_models: int
    value: float | None
    reason: str | None
    target: str | None = None
    own_source: float | None = None
    own_target: float | None = None
    ceiling: float | None = None
    share: float | None = None
    unlike: str | None = None

    @property
    def level(self) -> Level:
        """One platform or two."""
        return Level.PLATFORM if self.target is None else Level.PAIR


def frontiers(latency: Floats, accuracy: Floats) -> Mask:
    """The frontier of every draw: (draws, n_models) and (n_models,) to (draws, n_models).

    Row by row what `pareto.frontier` gives; exact duplicates are both kept.
    """
    require_finite(latency)
    require_finite(accuracy)
    by_accuracy = np.argsort(-accuracy, kind="stable")
    # Stable: of models equally fast, the more accurate comes first.
    order = by_accuracy[np.argsort(latency[:, by_accuracy], axis=1, kind="stable")]
    times, hits = np.take_along_axis(latency, order, axis=1), accuracy[order]
    best = np.maximum.accumulate(hits, axis=1)
    is_better = np.ones(times.shape, dtype=np.bool_)
    is_better[:, 1:] = hits[:, 1:] > best[:, :-1]
    is_new = np.ones(times.shape, dtype=np.bool_)
    is_new[:, 1:] = (times[:, 1:] != times[:, :-1]) | (hits[:, 1:] != hits[:, :-1])
    first = np.maximum.accumulate(np.where(is_new, np.arange(times.shape[1]), 0), axis=1)
    masks = np.empty(times.shape, dtype=np.bool_)
    np.put_along_axis(masks, order, np.take_along_axis(is_better, first, axis=1), axis=1)
    return masks


def self_overlap(first: Mask, second: Mask) -> tuple[float, float]:
    """Mean precision and recall of frontier after frontier, (draws, n_models) each.

    A frontier of at least one model is never empty.
    """
    both = (first & second).sum(axis=1)
    return float((both / first.sum(axis=1)).mean()), float((both / second.sum(axis=1)).mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierNoise:
    """Frontiers of two independent series of resampled medians per platform.

    Attributes:
        latency: (2, n_platforms, draws, n_models), NaN where a model has fewer than 2 repeats or
            no accuracy.
        accuracy: (n_models,).
    """

    latency: Floats
    accuracy: Floats

    @property
    def present(self) -> Mask:
        """Models that can be used, (n_models, n_platforms)."""
        mask: Mask = np.isfinite(self.latency[0, :, 0, :]).T
        return mask


def frontier_noise(panel: Panel, repeats: Repeats, seed: int) -> FrontierNoise:
    """Resamples every cell's process medians, twice over."""
    n_platforms = len(panel.keys)
    draws = 200 if n_platforms <= FEW_PLATFORMS else 50
    latency = np.empty((2, n_platforms, draws, len(panel.models)))
    for column, key in enumerate(panel.keys):
        processes = repeats.processes[0, :, column]
        is_used = (np.isfinite(processes).sum(axis=1) >= MIN_REPEATS_TO_SPLIT) & np.isfinite(
            panel.accuracy
        )
        rng = platform_rng(seed, key, "frontier")
        for side in (0, 1):
            medians = resampled_medians(processes, draws, rng)
            latency[side, column] = np.where(is_used, medians, np.nan)
    return FrontierNoise(latency=latency, accuracy=panel.accuracy)


def frontier_overlap(noise: FrontierNoise, models: Rows, column: int) -> tuple[float, float]:
    """Mean precision and recall of the platform's frontier for itself; NaN below 5 models."""
    if models.size < MIN_MODELS:
        return float("nan"), float("nan")
    accuracy = noise.accuracy[models]
    first, second = (frontiers(side[column][:, models], accuracy) for side in noise.latency)
    return self_overlap(first, second)


def frontier_ceilings(
    session: Session, columns: Sequence[int], pairs: Sequence[Pair]
) -> tuple[tuple[FrontierCeiling, ...], int]:
    """Figures of single platforms, then of pairs, and the number of draws they are from."""
    panel = session.panel
    noise = frontier_noise(panel, session.repeats, session.selection.seed)
    of_pairs: list[list[FrontierCeiling]] = [[] for _ in pairs]

    @functools.cache
    def own(models: bytes, column: int) -> tuple[float, float]:
        # A platform's own models are those of its pairs where nothing is missing.
        return frontier_overlap(noise, np.frombuffer(models, dtype=np.int64), column)

    for block in blocks(noise.present, pairs):
        for where, mine in zip(block.where, _of_block(panel, own, block), strict=True):
            of_pairs[where] = mine
    of_platforms = _of_platforms(panel, noise, own, columns)
    found = (*of_platforms, *(one for mine in of_pairs for one in mine))
    return found, noise.latency.shape[2]


def _of_platforms(
    panel: Panel, noise: FrontierNoise, own: OwnOverlap, columns: Sequence[int]
) -> Iterator[FrontierCeiling]:
    for column in columns:
        models = np.flatnonzero(noise.present[:, column])
        for name, value in zip(_MEASURES, own(models.tobytes(), column), strict=True):
            yield FrontierCeiling(
                measure=name,
                source=panel.keys[column],
                n_models=models.size,
                value=_known(value),
                reason=_few(models.size) if math.isnan(value) else None,
            )


def _of_block(
    panel: Panel, own_overlap: OwnOverlap, block: Block
) -> Iterator[list[FrontierCeiling]]:
    models = block.models
    own = [own_overlap(models.tobytes(), column) for column in block.columns.tolist()]
    masks = [
        frontier(np.column_stack([panel.latency[models, column], -panel.accuracy[models]]))
        for column in block.columns
    ]
    facts = panel.platforms[block.columns.tolist()].to_dicts()
    for i, j in zip(block.source, block.target, strict=True):
        both = overlap(masks[i], masks[j]) if models.size >= MIN_MODELS else None
        figures = (None, None) if both is None else (both.precision, both.recall)
        is_unlike = are_unlike(facts[i][STATISTIC], facts[j][STATISTIC])
        bounds = [math.sqrt(a * b) for a, b in zip(own[i], own[j], strict=True)]
        ceilings = [None if is_unlike else _known(bound) for bound in bounds]
        why = UNLIKE_STATISTICS if is_unlike else None
        yield [
            FrontierCeiling(
                measure=name,
                source=panel.keys[block.columns[i]],
                target=panel.keys[block.columns[j]],
                n_models=models.size,
                value=figures[at],
                own_source=_known(own[i][at]),
                own_target=_known(own[j][at]),
                ceiling=ceilings[at],
                share=_share(figures[at], ceilings[at]),
                unlike=unlike_facts(facts[i], facts[j]),
                reason=why if both else _few(models.size),
            )
            for at, name in enumerate(_MEASURES)
        ]


def _share(figure: float | None, ceiling: float | None) -> float | None:
    return None if figure is None or ceiling is None else figure / ceiling


def _few(n_models: int) -> str:
    few = count_of(n_models, "model")
    return f"{few} with accuracy and 2 repeats or more, at least {MIN_MODELS} needed"


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)

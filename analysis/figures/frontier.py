"""Which models of a target's accuracy-latency frontier a source predicted."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.pareto import FrontierOverlap, Mask, frontier, overlap
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats


class Fate(StrEnum):
    """Whether a model is on the source's frontier, the target's frontier, both or neither."""

    HIT = "h"
    MISS = "m"
    FALSE = "f"
    NEITHER = "n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFates:
    """One directed pair of platforms over the models both have, with a known accuracy.

    Attributes:
        models: their names; `fates` has one for each.
    """

    source: str
    target: str
    overlap: FrontierOverlap
    models: tuple[str, ...]
    fates: tuple[Fate, ...]


def frontier_pairs(cells: pl.DataFrame, platforms: Sequence[str]) -> Iterator[PairFates]:
    """Every directed pair of these platforms with enough common models for a frontier."""
    known = cells.filter(
        pl.col("accuracy_top1").is_not_null()
        & (pl.col("latency_ns") > 0)
        & pl.col("platform_key").is_in(list(platforms))
    ).unique(["model", "platform_key"], keep="first", maintain_order=True)
    models = known["model"].unique().sort().to_list()
    accuracy = dict(known.select("model", "accuracy_top1").iter_rows())
    costs = -np.array([accuracy[model] for model in models], dtype=np.float64)
    latency = {key: np.full(len(models), np.nan) for key in platforms}
    row = {model: at for at, model in enumerate(models)}
    for model, key, value in known.select("model", "platform_key", "latency_ns").iter_rows():
        latency[key][row[model]] = value
    for source, target in itertools.permutations(platforms, 2):
        common = np.flatnonzero(np.isfinite(latency[source]) & np.isfinite(latency[target]))
        if common.size < MIN_MODELS:
            continue
        masks = tuple(
            _frontier(latency[key][common], costs[common]) for key in (source, target)
        )  # fmt: skip
        found = overlap(*masks)
        if found is not None:
            yield PairFates(
                source=source,
                target=target,
                overlap=found,
                models=tuple(models[at] for at in common),
                fates=tuple(_fate(bool(s), bool(t)) for s, t in zip(*masks, strict=True)),
            )


def _frontier(latency: Floats, cost: Floats) -> Mask:
    return frontier(np.column_stack([latency, cost]))


def _fate(in_source: bool, in_target: bool) -> Fate:
    if in_source and in_target:
        return Fate.HIT
    if in_target:
        return Fate.MISS
    return Fate.FALSE if in_source else Fate.NEITHER

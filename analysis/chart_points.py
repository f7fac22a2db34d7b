"""The points of the charts: distributions of latency, and the models that are on frontiers."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.pareto import FrontierOverlap, frontier, overlap
from fleetrank.analysis.arrays.ranking import MIN_MODELS
from fleetrank.analysis.stored.columns import ROW_KEY

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Quantiles of a cell's samples that a strip of nested bars shows."""
MAX_PROCESSES = 12
"""Maximum processes for a cell's marks and strip. Medians of more are picked at evenly spaced
ranks, both ends included; samples are of the first repeats, which come in random order."""
_MAX_SAMPLES = 30_000_000
"""Samples read for one page: about two seconds and a quarter of a gigabyte."""
_GRID = 41
"""Evenly spaced order statistics that represent a process: each process has the same weight, for
any number of runs."""


def process_medians(attempts: pl.LazyFrame) -> pl.DataFrame:
    """At most `MAX_PROCESSES` process medians per cell from `load.valid_attempts`, as a list."""
    ranks = pl.col("latency_p50_ns").drop_nulls().sort()
    n = ranks.len()
    step = pl.int_range(0, pl.min_horizontal(n, MAX_PROCESSES))
    spread = (step * (n - 1) / (pl.min_horizontal(n, MAX_PROCESSES) - 1)).round()
    picked = ranks.gather(pl.when(n <= MAX_PROCESSES).then(step).otherwise(spread).cast(pl.Int64))
    return attempts.group_by("model", "platform_key").agg(picked.alias("medians_ns")).collect()


def sampled_processes(attempts: pl.LazyFrame) -> pl.DataFrame:
    """Keys, model, platform and `samples_of` (n) of the rows whose samples make the strips.

    Takes `load.valid_attempts` without samples. At most `MAX_PROCESSES` a cell, fewer where the
    samples of all would be more than a page can read.
    """
    rows = (
        attempts.filter(pl.col("sample_count") > 0)
        .select(*ROW_KEY, "model", "platform_key", "sample_count")
        .sort("model", "platform_key", "repeat")
        .with_columns(pl.int_range(pl.len()).over("model", "platform_key").alias("nth"))
        .filter(pl.col("nth") < MAX_PROCESSES)
        .collect()
    )
    counts = rows.group_by("nth").agg(pl.col("sample_count").sum()).sort("nth")
    within = counts.filter(pl.col("sample_count").cum_sum() <= _MAX_SAMPLES).height
    return rows.filter(pl.col("nth") < max(within, 1)).drop("nth", "sample_count")


def sample_quantiles(scan: pl.LazyFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """`quantiles_ns`, a list as long as `QUANTILES`, of each model and platform with raw samples.

    Args:
        scan: stored measurements with their samples; only the columns needed are read.
        rows: as `sampled_processes` gives them.
    """
    last = pl.col("samples_ns").list.len() - 1
    grid = [
        pl.col("samples_ns").list.get((last * (step / (_GRID - 1))).round().cast(pl.Int64))
        for step in range(_GRID)
    ]
    repeats = rows["repeat"].unique()
    samples = (
        scan.filter(pl.col("repeat").is_in(repeats.to_list()) & (pl.col("status") == "ok"))
        .select(*ROW_KEY, "samples_ns")
        .join(rows.lazy(), on=ROW_KEY)
        .filter(pl.col("samples_ns").list.len() > 0)
        .with_columns(pl.col("samples_ns").list.sort())
        .select("model", "platform_key", pl.concat_list(grid).alias("samples_ns"))
    )
    values = pl.col("samples_ns")
    shares = [values.quantile(share, interpolation="linear") for share in QUANTILES]
    return (
        samples.explode("samples_ns")
        .group_by("model", "platform_key")
        .agg(pl.concat_list(shares).alias("quantiles_ns"))
        .collect()
    )


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
            frontier(np.column_stack([latency[key][common], costs[common]]))
            for key in (source, target)
        )
        found = overlap(*masks)
        if found is not None:
            yield PairFates(
                source=source,
                target=target,
                overlap=found,
                models=tuple(models[at] for at in common),
                fates=tuple(_fate(bool(s), bool(t)) for s, t in zip(*masks, strict=True)),
            )


def _fate(in_source: bool, in_target: bool) -> Fate:
    if in_source and in_target:
        return Fate.HIT
    if in_target:
        return Fate.MISS
    return Fate.FALSE if in_source else Fate.NEITHER

"""Distributions of latency: process medians, and quantiles of the raw samples."""

from collections.abc import Sequence

import polars as pl

from fleetrank.analysis.stored.columns import ROW_KEY

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
"""Quantiles of a cell's samples that a strip of nested bars shows."""
MAX_PROCESSES = 12
"""Maximum processes for a cell's marks and strip; medians of more are picked at evenly spaced
ranks,
both ends included, samples are of the first repeats, which come in random order."""
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
    return (
        samples.explode("samples_ns")
        .group_by("model", "platform_key")
        .agg(pl.concat_list(_quantiles(QUANTILES)).alias("quantiles_ns"))
        .collect()
    )


def _quantiles(shares: Sequence[float]) -> list[pl.Expr]:
    return [pl.col("samples_ns").quantile(share, interpolation="linear") for share in shares]

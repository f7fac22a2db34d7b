"""Rank by FLOPs against measured rank, on each platform."""

import polars as pl


def flops_ranks(cells: pl.DataFrame) -> pl.DataFrame:
    """Ranks from 1 (fewest FLOPs, fastest) among the platform's models that have both.

    Takes rows of `cells_table.cell_values`; gives `model`, `platform_key`, `flops_rank`,
    `latency_rank` and `n_ranked`, of platforms with at least two such models. Equal values share
    the mean of their ranks.
    """
    return (
        cells.filter((pl.col("flops") > 0) & (pl.col("latency_ns") > 0))
        .select(
            "model",
            "platform_key",
            pl.col("flops").rank().over("platform_key").alias("flops_rank"),
            pl.col("latency_ns").rank().over("platform_key").alias("latency_rank"),
            pl.len().over("platform_key").cast(pl.Int64).alias("n_ranked"),
        )
        .filter(pl.col("n_ranked") > 1)
        .unique(["model", "platform_key"], keep="first", maintain_order=True)
    )

"""The order in which models stand in the figures of memory."""

import polars as pl


def models_by_memory(cells: pl.DataFrame) -> list[str]:
    """Models from the smallest to the largest median peak over the platforms that report one."""
    ordered = (
        cells.filter(pl.col("peak_memory_bytes") > 0)
        .group_by("model")
        .agg(pl.col("peak_memory_bytes").median())
        .sort("peak_memory_bytes", "model")
    )
    return [str(name) for name in ordered["model"]]

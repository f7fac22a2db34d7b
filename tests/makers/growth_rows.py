"""Made-up rows of models at several batches, lengths and sizes of images, in sustained runs.

Among them are steps of training. Others are prompts and segments of long texts.
"""

from collections.abc import Iterator

import polars as pl

OF_GROWTH = ("scaling", "scaling/points", "scaling/sustained", "latency/training")
"""Tables that need such rows."""
OF_READING = ("tokens/reading", "tokens/crossover")
"""Tables that need prompts of several lengths, and segments."""
OF_SIDE_ROWS = (
    "components", "components/ratios", "eval", "eval/precisions", "scaling/replicas",
    "tokens/contexts",
)  # fmt: skip
"""Tables that need profiles, evaluations or sets of processes; their tests make them."""


OF_PRECISIONS = ("pairs/precisions",)
"""Tables that need models in two precisions."""
OF_SWEEPS = ("history", "history/steps")
"""Tables that need several sweeps."""


def with_integers(rows: pl.LazyFrame) -> pl.LazyFrame:
    """The rows in fp32, and copies in int8 that are twice as fast and a quarter as large."""
    plain = rows.with_columns(
        pl.col("latency_p50_ns", "latency_mean_ns").cast(pl.Float64), precision=pl.lit("fp32")
    )
    copies = plain.with_columns(
        pl.col("latency_p50_ns", "latency_mean_ns") / 2,
        pl.col("artifact_bytes") // 4,
        pl.col("platform_key").str.replace("/fp32/", "/int8/", literal=True),
        pl.concat_str("cell_key", pl.lit("-int8")),
        precision=pl.lit("int8"),
    )
    return pl.concat([plain, copies])


def rows_for(table: str, rows: pl.LazyFrame) -> pl.LazyFrame:
    """The rows with those that a table of side rows of measurements needs."""
    if table in OF_GROWTH:
        return with_growth(rows)
    if table in OF_PRECISIONS:
        return with_integers(rows)
    if table in OF_SWEEPS:
        return with_sweeps(rows)
    return with_segments(rows) if table in OF_READING else rows


def with_sweeps(rows: pl.LazyFrame) -> pl.LazyFrame:
    """The rows in eight sweeps, all of which are slower from the fifth on."""
    latency = pl.col("latency_p50_ns").cast(pl.Float64)
    return pl.concat(
        rows.with_columns(
            latency * (1.3 if number > 3 else 1.0),
            sweep_id=pl.lit(f"daily-2026010{number}T000000-000{number}"),
            started_utc=pl.datetime(2026, 1, 1 + number, time_zone="UTC"),
        )
        for number in range(8)
    )


def with_segments(rows: pl.LazyFrame) -> pl.LazyFrame:
    """The rows, and copies of those of one workload as prompts and as segments."""
    base = rows.filter(pl.col("workload").fill_null("image").is_in(["image", "prefill@128"]))
    copies = [
        base.with_columns(
            pl.col("latency_p50_ns", "flops").cast(pl.Float64) * factor,
            workload=pl.lit(workload),
            tokens_per_inference=pl.lit(length, dtype=pl.Int64),
            cell_key=pl.format("{}-{}", "cell_key", pl.lit(workload)),
        ).with_columns(pl.col("flops").cast(pl.Int64))
        for workload, length, factor in (
            ("prefill@96", 96, 1.5), ("prefill@192", 192, 4.0), ("prefill@384", 384, 12.0),
            ("segment@64+k8+n16", 64, 1.6), ("segment@64+k8+n0", 64, 1.2),
        )
    ]  # fmt: skip
    return pl.concat([rows, *copies])


def with_growth(rows: pl.LazyFrame) -> pl.LazyFrame:
    """The rows, and copies at other batches, lengths and sizes; all are sustained runs."""
    return pl.concat([rows, *_copies(rows)]).with_columns(
        stop_reason=pl.lit("min_time"),
        sustained_ns=(pl.col("latency_mean_ns").fill_null(1e6) * 100).cast(pl.Int64),
        sample_count=pl.lit(100, dtype=pl.Int64),
    )


def _copies(rows: pl.LazyFrame) -> Iterator[pl.LazyFrame]:
    for batch in (2, 4):
        yield rows.with_columns(
            batch=pl.lit(batch, dtype=pl.Int64),
            platform_key=pl.col("platform_key").str.replace(r"/b\d+/t", f"/b{batch}/t"),
            cell_key=pl.col("cell_key") + f"-b{batch}",
        )
    for length in (32, 64):
        yield rows.with_columns(
            workload=pl.lit(f"encode@{length}"),
            tokens_per_inference=pl.lit(length, dtype=pl.Int64),
            cell_key=pl.col("cell_key") + f"-{length}",
        )
    for batch in (4, 8):
        yield rows.filter(pl.col("workload").fill_null("image") == "image").with_columns(
            workload=pl.lit(f"train@{batch}"),
            batch=pl.lit(batch, dtype=pl.Int64),
            platform_key=pl.col("platform_key").str.replace(r"/b\d+/t", f"/b{batch}/t"),
            cell_key=pl.col("cell_key") + f"-train{batch}",
        )
    for size in (160, 288):
        yield rows.filter(pl.col("workload").fill_null("image") == "image").with_columns(
            input_size=pl.lit(size, dtype=pl.Int64),
            axes=pl.lit(f"input_size={size}"),
            platform_key=pl.col("platform_key") + f"/input_size={size}",
            cell_key=pl.col("cell_key") + f"-{size}px",
        )

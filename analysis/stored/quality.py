"""Which rows are dropped and why, and which rows are kept with a quality flag.

A flag alone does not drop a row. On a busy host most rows carry a flag, slow models more often than
fast ones, so dropping them would bias the choice of models. Flagged cells are counted and named
instead.
"""

import polars as pl

from fleetrank.analysis.stored.columns import EXCLUDED
from fleetrank.analysis.stored.load import valid_attempts

DISAGREE_SHARE = 0.15
"""Range of process medians over their median beyond which repeats disagree.

Source: the measuring protocol; processes on a quiet 2-core machine vary by 4 to 6 %.
"""
DISAGREE_FLAG = "repeats_disagree"

_KEY = ("sweep_id", "cell_key", "repeat", "attempt")


def with_repeats_disagree(cells: pl.LazyFrame) -> pl.LazyFrame:
    """Adds `repeats_spread` and its flag.

    Expects `medians`, the sorted process medians, `latency_ns`, their median, and `flags`. One
    process has no spread: null.
    """
    medians = pl.col("medians")
    spread = (medians.list.last() - medians.list.first()) / pl.col("latency_ns")
    flags = pl.concat_list("flags", pl.lit(DISAGREE_FLAG)).list.sort()
    return cells.with_columns(
        pl.when(medians.list.len() > 1).then(spread).alias("repeats_spread")
    ).with_columns(
        pl.when(pl.col("repeats_spread") > DISAGREE_SHARE)
        .then(flags)
        .otherwise("flags")
        .alias("flags")
    )


def dropped_attempts(frame: pl.LazyFrame) -> pl.DataFrame:
    """All attempts that no figure uses, with `reason` and `detail`, sorted.

    Reasons: `excluded` (by hand; `detail` is the reason given), `failed` (no later attempt at this
    repeat worked), `retried` (one did), `superseded` (a newer sweep measured this model on this
    platform), `no latency` (status ok, yet no summary).
    """
    kept = valid_attempts(frame).select(_KEY)
    worked = frame.filter(pl.col("status") == "ok").select("sweep_id", "cell_key", "repeat")
    has_ok = worked.unique().with_columns(pl.lit(value=True).alias("has_ok"))
    failed = pl.col("status") != "ok"
    out = (
        frame.select(
            *_KEY,
            "model",
            "platform_key",
            "status",
            "error_kind",
            "error_message",
            "error_stage",
            EXCLUDED.name,
        )
        .join(kept, on=_KEY, how="anti")
        .join(has_ok, on=["sweep_id", "cell_key", "repeat"], how="left")
        .with_columns(
            pl.when(pl.col(EXCLUDED.name).is_not_null())
            .then(pl.lit("excluded"))
            .when(failed & pl.col("has_ok").is_null())
            .then(pl.lit("failed"))
            .when(failed)
            .then(pl.lit("retried"))
            .otherwise(pl.lit("superseded"))
            .alias("reason")
        )
    )
    no_latency = (
        valid_attempts(frame)
        .filter(pl.col("latency_p50_ns").is_null())
        .select(*_KEY, "model", "platform_key", pl.lit("no latency").alias("reason"))
    )
    columns = ("model", "platform_key", *_KEY, "reason", "error_kind", "error_stage")
    return (
        pl.concat([out, no_latency], how="diagonal")
        .select(*columns, pl.coalesce(EXCLUDED.name, "error_message").alias("detail"))
        .sort("model", "platform_key", *_KEY)
        .collect()
    )

"""One row per model and platform: medians over repeats of the figures of single processes.

Also which rows are dropped and why. A flag alone does not drop a row. On a busy host most rows
carry a flag, slow models more often than fast ones, so dropping them would bias the choice of
models. Flagged cells are counted and named instead.
"""

from typing import TYPE_CHECKING

import polars as pl

from fleetrank.analysis.stored.columns import EXCLUDED
from fleetrank.analysis.stored.latency_statistic import STATISTIC
from fleetrank.analysis.stored.load import last_attempts, pinned_to, valid_attempts
from fleetrank.foundation.vocabulary import Design

if TYPE_CHECKING:
    from fleetrank.analysis.arrays.ranking import Floats

MIN_REPEATS = 5
"""Fewest processes of an interval: below, it would rest on those of other cells."""
_CELL = ("model", "platform_key", "cell_key")
_FACTS = (
    "family", "has_attention", "card_sha256", "weights_id", "input_size", "flops", "flops_method",
    "parameters", "accuracy_top1", "accuracy_source", "device", "device_model", "tier", "runtime",
    "backend", "mode", "precision", "batch", "threads", "affinity", "options", "axes",
    "workload", "prompt_tokens", "context_tokens", "tokens_per_inference",
    "model_context_tokens", "weight_bytes", "state_bytes", "bytes_moved", "peak_gflops",
    "peak_gbps", "sweep_id", "seed", "backend_nodes", "graph_nodes",
    "integer_products", "products", "artifact_bytes", "artifact_format", "border",
    "logical_cores", "stopping_rule",
)  # fmt: skip
_MUST_AGREE = ("memory_metric", "sample_kind", STATISTIC, "design", "runtime_version", "origin")
_SUMMARIES = {
    "latency_ns": "latency_p50_ns",
    "latency_mean_ns": "latency_mean_ns",
    "latency_p95_ns": "latency_p95_ns",
    "latency_p99_ns": "latency_p99_ns",
    "peak_memory_bytes": "peak_memory_bytes",
    "load_peak_memory_bytes": "load_peak_memory_bytes",
    "reserved_memory_bytes": "reserved_memory_bytes",
    "process_memory_bytes": "process_memory_bytes",
    "load_ns": "load_ns",
    "first_inference_ns": "first_inference_ns",
    "energy_mj": "energy_mj",
    "snr_db": "snr_db",
}


def cell_values(frame: pl.LazyFrame) -> pl.DataFrame:
    """Values of every cell, sorted by model and platform; takes every attempt, keeps valid ones.

    Two rows share a model and a platform only when one sweep measured two cards or weights under
    one name there. Columns beyond the facts of `analysis.stored.columns`:
        n_repeats: number of processes of the row.
        latency_ns, latency_p95_ns, latency_p99_ns: median over processes of each one's p50 (or
            its `statistic`), p95 and p99; the other figures are such medians too. Processes with
            different statistics have no `latency_ns` together, nor an interval.
        ttft_ns: such a median of the prompts of `generate`, whose latency is of its steps; null for
            other workloads.
        latency_low_ns, latency_high_ns: 95 % interval of the median over processes, see
            `arrays.interval`; null with `interval_reason` below 5 of them.
        log_reach: half-width of that interval of its logarithm, also below 5; null where no process
            shows the spread.
        repeats_spread: range of the process medians over their median; null for one process.
        process_gap: mean difference of two process medians over the median; null for one process.
        taken_share: share of its cores that other programs used just before a process, 0 to 1,
            median over processes; null where the use or the number of cores is unknown, and in
            rounds, where it is the same for all models.
        flags: quality flags of any repeat, including `repeats_disagree`.
        backend_nodes, graph_nodes, integer_products, products: of the first repeat that states
            them.
        affinity: the platform's: `first_cores`, CPU numbers, or null if the system chooses.
    If a fact differs between repeats, its text column lists all values, joined by ' | '.
    """
    cells = (
        valid_attempts(frame)
        .group_by(_CELL)
        .agg(
            pl.len().alias("n_repeats"),
            *(pl.col(source).median().alias(name) for name, source in _SUMMARIES.items()),
            pl.col("ttft_samples_ns").list.median().median().alias("ttft_ns"),
            *(_fact(name).drop_nulls().first() for name in _FACTS),
            *(_joined(name) for name in _MUST_AGREE),
            pl.col("started_utc").min(),
            pl.col("sample_count").sum(),
            taken_share().median().alias("taken_share"),
            pl.col("flags").explode().drop_nulls().unique().sort(),
            pl.col("latency_p50_ns").drop_nulls().sort().alias("medians"),
        )
    )
    values = with_repeats_disagree(_without_mixed(cells)).sort(_CELL).collect()
    return _with_interval(values).drop("medians")


def _fact(name: str) -> pl.Expr:
    return pinned_to() if name == "affinity" else pl.col(name)


def taken_share() -> pl.Expr:
    """Share of a repeat's cores that other programs used just before it; see `cell_values`."""
    others = pl.col("busy_share_before") * pl.col("logical_cores")
    free = pl.col("logical_cores") - pl.col("threads")
    share = ((others - free) / pl.col("threads")).clip(0.0, 1.0)
    return pl.when(pl.col("design").ne_missing(Design.ROUNDS), pl.col("threads") > 0).then(share)


def _mixes() -> pl.Expr:
    """Whether the processes of a cell have different statistics."""
    return pl.col(STATISTIC).str.contains(" | ", literal=True).fill_null(value=False)


def _without_mixed(cells: pl.LazyFrame) -> pl.LazyFrame:
    """Without the latency of cells whose processes have different statistics."""
    return cells.with_columns(
        pl.when(~_mixes()).then("latency_ns").alias("latency_ns"),
        pl.when(_mixes()).then(pl.col("medians").list.head(0)).otherwise("medians")
        .alias("medians"),
    )  # fmt: skip


def _joined(name: str) -> pl.Expr:
    values = pl.col(name).drop_nulls().unique().sort()
    return pl.when(values.len() > 0).then(values.str.join(" | ")).alias(name)


def _with_interval(cells: pl.DataFrame) -> pl.DataFrame:
    """Adds the interval of the median; the cells of a sweep on a platform say how far they spread.

    Needs `medians`, `latency_ns`, `process_gap` and `taken_share`.
    """
    n = pl.col("medians").list.len()
    # No `pl.format` here: see `named_by_precision`.
    few = pl.concat_str(pl.lit("n = "), n, pl.lit(f": no interval below {MIN_REPEATS} repeats"))
    mixed = pl.concat_str(pl.lit("no latency: the repeats mix "), STATISTIC)
    reason = pl.when(_mixes()).then(mixed).when(n < MIN_REPEATS).then(few)
    has_interval = (n >= MIN_REPEATS) & (pl.col("latency_ns") > 0)
    end = pl.when(has_interval).then(pl.col("latency_ns"))
    return cells.with_columns(
        pl.Series("log_reach", _reach(cells)).fill_nan(None),
        reason.alias("interval_reason"),
    ).with_columns(
        (end * (-pl.col("log_reach")).exp()).alias("latency_low_ns"),
        (end * pl.col("log_reach").exp()).alias("latency_high_ns"),
    )


def _reach(cells: pl.DataFrame) -> "Floats":
    """Half-width of the interval of the log of each median, (n_cells,); NaN if not known."""
    import numpy as np  # commands that read no rows need neither this nor SciPy

    if not cells.select((pl.col("medians").list.len() > 1).any()).item():
        return np.full(cells.height, np.nan)
    from fleetrank.analysis.arrays.interval import half_width, shrunk_by, squared_error

    logs = pl.col("medians").list.eval(pl.element().log())
    found = cells.select(
        alike=pl.concat_str("sweep_id", "platform_key", separator=" "),
        n=pl.col("medians").list.len().cast(pl.Int64),
        variance=logs.list.var().fill_null(0.0).fill_nan(0.0),
        is_usual=~is_noisy(),
    )
    n = found["n"].to_numpy()
    degrees = np.maximum(n - 1.0, 0.0)
    variance, freedom = shrunk_by(
        found["variance"].to_numpy() * degrees,
        degrees,
        found["is_usual"].to_numpy(),
        found["alike"].to_numpy(),
    )
    error = squared_error(variance, n, np.zeros(n.size, dtype=np.bool_))
    return half_width(error, freedom)


DISAGREE_SHARE = 0.15
"""Range of process medians over their median beyond which repeats disagree.

Source: the measuring protocol; processes on a quiet 2-core machine vary by 4 to 6 %.
"""
NOISY_SHARE = 0.10
"""Mean difference of two processes over their median beyond which a cell is noisy.

Unlike a range it does not grow with the number of processes. A standard deviation of 5 %, usual on
a quiet machine, gives 5.6 %.
"""
TAKEN_SHARE = 0.25
"""Share of a cell's cores in other programs' use beyond which it is noisy, whatever its processes.

Beside two busy loops on two cores 2 of 12 cells had processes that agreed within 10 % on a latency
that was 45 % too long; their share was 1. Without a loop it was at most 0.11.
"""
DISAGREE_FLAG = "repeats_disagree"
_KEY = ("sweep_id", "cell_key", "repeat", "attempt")


def with_repeats_disagree(cells: pl.LazyFrame) -> pl.LazyFrame:
    """Adds `repeats_spread` and its flag, and `process_gap`.

    Expects `medians`, the sorted process medians, `latency_ns`, their median, and `flags`. One
    process has no spread, nor has a median of 0: null.
    """
    medians = pl.col("medians")
    spread = (medians.list.last() - medians.list.first()) / pl.col("latency_ns")
    # Of sorted values; number i is the larger one of i pairs and the smaller one of the others.
    one, n = pl.element(), pl.len().cast(pl.Int64)
    gaps = one * (2 * pl.int_range(n) - n + 1) / (n * (n - 1) / 2)
    gap = medians.list.eval(gaps).list.sum() / pl.col("latency_ns")
    flags = pl.concat_list("flags", pl.lit(DISAGREE_FLAG)).list.sort()
    has_several = (medians.list.len() > 1) & (pl.col("latency_ns") > 0)
    return cells.with_columns(
        pl.when(has_several).then(spread).alias("repeats_spread"),
        pl.when(has_several).then(gap).alias("process_gap"),
    ).with_columns(
        pl.when(pl.col("repeats_spread") > DISAGREE_SHARE)
        .then(flags)
        .otherwise("flags")
        .alias("flags")
    )


def placement() -> pl.Expr:
    """`54/65`: nodes on the backend of all nodes; null where a source does not state both.

    `37/53 integer`: products with integers of all products, of a file with integers on a host.
    """
    return pl.coalesce(
        pl.concat_str("backend_nodes", "graph_nodes", separator="/"),
        pl.concat_str("integer_products", pl.lit("/"), "products", pl.lit(" integer")),
    ).alias("placement")


def dropped_attempts(frame: pl.LazyFrame) -> pl.DataFrame:
    """All attempts that no figure uses, with `reason` and `detail`, sorted.

    Reasons: `excluded` (by hand; `detail` is the reason given), `failed` (no attempt at this repeat
    worked), `retried` (another attempt at it counts), `superseded` (a newer sweep measured this
    model on this platform), `no latency` (status ok, yet no summary).
    """
    kept = valid_attempts(frame).select(_KEY)
    of_repeat = ("sweep_id", "cell_key", "repeat")
    last = last_attempts(frame).select(*of_repeat, pl.col("attempt").alias("last"))
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
        .join(last, on=of_repeat, how="left")
        .with_columns(
            pl.when(pl.col(EXCLUDED.name).is_not_null())
            .then(pl.lit("excluded"))
            .when(failed & pl.col("last").is_null())
            .then(pl.lit("failed"))
            .when(failed | (pl.col("attempt") < pl.col("last")))
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


def is_noisy() -> pl.Expr:
    """Whether two processes of a cell differ too much, or other programs used its cores."""
    by_others = (pl.col("taken_share") > TAKEN_SHARE).fill_null(value=False)
    return by_others | (pl.col("process_gap") > NOISY_SHARE).fill_null(value=False)

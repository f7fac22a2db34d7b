"""Shares of kernel time by module or operator, from stored profiles."""

import functools
import itertools
import math
import statistics

import polars as pl

from fleetrank.analysis.stored.cell_values import MIN_REPEATS
from fleetrank.analysis.stored.chosen_workload import known_workload

PLACE = ("model", "platform_key", "workload")
"""What one profile is of."""
_PROCESS = (*PLACE, "sweep_id", "cell_key", "repeat")
MODULE, OPERATOR = "module", "operator"
_LEVEL = r"[^.]+(?:\.\d+)?"
UNNAMED = "(no module named)"
"""Kernels of a file that names no modules."""


def valid_profiles(rows: pl.DataFrame) -> pl.DataFrame:
    """The kernels of the newest sweep that profiled each model on each platform.

    Of each repeat the last attempt with status ok counts, as with latencies.

    Args:
        rows: of the side table `component_times`.
    """
    named = rows.with_columns(known_workload())
    ok = named.filter(pl.col("status") == "ok").filter(
        pl.col("attempt") == pl.col("attempt").max().over(_PROCESS)
    )
    newest = pl.col("sweep_id").sort_by("started_utc", "sweep_id").last().over(PLACE)
    return ok.filter(pl.col("sweep_id") == newest)


def component_of(split: str, depth: int) -> pl.Expr:
    """The component of a kernel: its operator, or the first `depth` parts of its module's path.

    A number belongs to the part before it: `blocks.3` is one part. A kernel of the model itself,
    such as a pooling without a module, is named after PyTorch's operation, or else its operator.
    """
    if split == OPERATOR:
        return pl.col("operator")
    path = pl.col("module").str.extract(rf"^({_LEVEL}(?:\.{_LEVEL}){{0,{depth - 1}}})")
    own = pl.format("(model) {}", pl.coalesce("source_operator", "operator"))
    return (
        pl.when(pl.col("module").is_null())
        .then(pl.lit(UNNAMED))
        .when(pl.col("module") == "")
        .then(own)
        .otherwise(path)
    )


def component_shares(kernels: pl.DataFrame, component: pl.Expr) -> pl.DataFrame:
    """Share of kernel time of each component, largest first inside a model and platform.

    Args:
        kernels: of `valid_profiles`.
        component: of a kernel, as `component_of` gives it.

    Returns:
        The columns of `PLACE`, then component; share: median over processes, divided by the sum of
        these medians, so that the shares of a model sum to 1; share_low, share_high: order-
        statistic interval of that median, null below 5 processes; n_processes; n_kernels, the
        kernels of one inference; output_bytes and weight_bytes, null where a kernel states none.
    """
    by_process = (
        kernels.with_columns(component.alias("component"))
        .group_by(*_PROCESS, "component")
        .agg(
            pl.col("kernel_ns").sum(),
            pl.col("calls").sum().alias("n_kernels"),
            *(
                pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).sum()).alias(name)
                for name in ("output_bytes", "weight_bytes")
            ),
        )
    )
    whole = pl.col("kernel_ns").sum().over(_PROCESS)
    shares = by_process.with_columns((pl.col("kernel_ns") / whole).alias("share"))
    n_processes = pl.struct("cell_key", "repeat").n_unique().over(PLACE).alias("n_processes")
    found = (
        shares.with_columns(n_processes)
        .group_by(*PLACE, "component")
        .agg(
            pl.col("n_processes").first(),
            pl.col("share").sort().alias("shares"),
            *(pl.col(name).median() for name in ("n_kernels", "output_bytes", "weight_bytes")),
        )
    )
    return _with_interval(found).sort(
        *PLACE, "share", "component", descending=[False, False, False, True, False]
    )


def macs_shares(rows: pl.DataFrame, component: pl.Expr) -> pl.DataFrame:
    """Share of each component in the MACs of one inference, where they were counted.

    Args:
        rows: of the side table `module_macs`.
        component: of a module, as `component_of` gives it for modules.

    Returns:
        sweep_id, model, workload, component; macs_share: of the MACs of the whole model, so those
        of the components sum to 1.
    """
    place = ("sweep_id", "model", "workload")
    named = rows.with_columns(known_workload(), pl.lit(None, pl.String()).alias("operator"))
    total = pl.col("macs").sum().over(place)
    return (
        named.with_columns(
            component.alias("component"), (pl.col("macs") / total).alias("macs_share")
        )
        .group_by(*place, "component")
        .agg(pl.col("macs_share").sum())
    )


def _with_interval(found: pl.DataFrame) -> pl.DataFrame:
    """Medians and their intervals; a component that a process lacks took no time there."""
    rows = found.to_dicts()
    for row in rows:
        n = int(row["n_processes"])
        shares = sorted([0.0] * (n - len(row["shares"])) + list(row.pop("shares")))
        depth = interval_depth(n)
        row["share"] = statistics.median(shares)
        row["share_low"] = shares[depth] if n >= MIN_REPEATS else None
        row["share_high"] = shares[n - 1 - depth] if n >= MIN_REPEATS else None
    shown = pl.DataFrame(rows, schema_overrides=dict.fromkeys(_FIGURES, pl.Float64()))
    total = pl.col("share").sum().over(PLACE)
    return shown.with_columns((pl.col(name) / total).alias(name) for name in _FIGURES)


@functools.lru_cache(maxsize=1024)
def interval_depth(n: int) -> int:
    """How many of `n` sorted values can be cut from each end of an interval of their median.

    It covers 93.75 % or more: that of the range of 5. A share may be 0, and has no logarithm.
    Source: the sign test's interval; P(fewer than k of n lie below the median) is binomial.
    """
    ways = itertools.accumulate(math.comb(n, k) for k in range(n + 1))
    return sum(1 - 2 * one / 2**n >= _COVERAGE for one in [*ways][1 : n // 2 + 1])


_COVERAGE = 0.9375
_FIGURES = ("share", "share_low", "share_high")


def attributed_share(kernels: pl.DataFrame) -> pl.DataFrame:
    """Of each model and platform, which share of kernel time belongs to a module.

    Returns:
        The columns of `PLACE`; attributed: share of the time of kernels with a module; inserted:
        share of the time of kernels that the runtime added, counted for the module beside them.
    """
    total = pl.col("kernel_ns").sum()
    named = pl.col("kernel_ns").filter(pl.col("module").is_not_null()).sum()
    inserted = pl.col("kernel_ns").filter(pl.col("is_inserted")).sum()
    return kernels.group_by(PLACE).agg(
        (named / total).alias("attributed"), (inserted / total).alias("inserted")
    )

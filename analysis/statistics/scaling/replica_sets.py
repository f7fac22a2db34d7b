"""Figures of sets: processes of one cell that were started together."""

import math
from dataclasses import dataclass

import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.two_samples import figures_of, ratios_of
from fleetrank.analysis.stored.chosen_workload import known_workload
from fleetrank.foundation.units import NS_PER_S

PLACE = ("model", "platform_key", "workload")
"""What a set is of."""
MIN_OVERLAP = 0.95
"""Share of a set's time in which all of its processes must run. Below it the sum of their work
over that time is not the throughput of so many processes."""
FAILED, NO_OVERLAP, ELSEWHERE, PLACE_UNKNOWN = "failed", "overlap", "placement", "placement_unknown"
"""Flags of a set. With one of the first three its work is not summed."""
_MJ_PER_J = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class OverOne:
    """Throughput of a number of processes over that of one.

    Attributes:
        ratio: of the medians over sets; `None` without a set on both sides.
        low, high: its 95 % interval; `None` with one set on each side.
    """

    ratio: float | None
    low: float | None
    high: float | None


def over_one(one: Floats, many: Floats) -> OverOne:
    """Compares throughputs of single sets, (n_one,) and (n_many,), all above 0.

    Sets are repeats: an interval over them covers what differs from one start to the next.
    """
    if not one.size or not many.size:
        return OverOne(ratio=None, low=None, high=None)
    both = figures_of([one, many], [False, False], ["sets", "sets"])
    found = ratios_of(both.at([0]), both.at([1]))
    log, reach = float(found.estimates[0]), float(found.reach()[0])
    if math.isnan(reach):
        return OverOne(ratio=math.exp(log), low=None, high=None)
    return OverOne(ratio=math.exp(log), low=math.exp(log - reach), high=math.exp(log + reach))


def newest_runs(rows: pl.DataFrame) -> pl.DataFrame:
    """The processes of the newest sweep that ran sets of each model, platform and workload.

    A sweep in which every process failed does not replace an older one. Of each repeat the last
    attempt counts, as with latencies; also if it failed.

    Args:
        rows: of the side table `replica_runs`.
    """
    named = rows.with_columns(known_workload())
    repeat = (*PLACE, "sweep_id", "cell_key", "n_replicas", "repeat")
    last = named.filter(pl.col("attempt") == pl.col("attempt").max().over(repeat))
    has_ok = (pl.col("status") == "ok").any().over(*PLACE, "sweep_id")
    newest = pl.col("sweep_id").sort_by(has_ok, "started_utc", "sweep_id").last().over(PLACE)
    return last.filter(pl.col("sweep_id") == newest)


def set_figures(runs: pl.DataFrame) -> pl.DataFrame:
    """One row for each set.

    System throughput is what all processes did, over the time from the first start to the last
    end. It is not the mean of the processes' own rates, which have times of their own.

    Args:
        runs: of `newest_runs`: one row for each process.

    Returns:
        The columns of `PLACE`, n_replicas, set_id, core_use, item (what is counted); then
        span_ns: from the start of the first inference of any process to the end of the last one;
        overlap: share of the span in which every process ran, 0 to 1;
        items_per_s: items of all processes over the span, null if the set does not hold;
        latency_ns: median over processes of each one's median;
        peak_memory_bytes: sum over processes, null if one is missing;
        j_per_item: energy of the device over the span, by its mean power, over the items;
        flags: why the set does not hold, what is unknown about it, and the flags of its processes.
    """
    tokens, peak = pl.col("tokens_per_inference").first(), pl.col("run_peak_memory_bytes")
    sets = runs.group_by(*PLACE, "n_replicas", "set_id", maintain_order=True).agg(
        pl.col("core_use").drop_nulls().first(),
        pl.coalesce(tokens, pl.col("batch").first()).alias("items"),
        pl.when(tokens.is_null()).then(pl.lit("sample")).otherwise(pl.lit("token")).alias("item"),
        (pl.col("status") == "ok").all().alias("is_ok"),
        pl.col("start_ns").count().alias("n_measured"),
        (pl.col("end_ns").max() - pl.col("start_ns").min()).alias("span_ns"),
        (pl.col("end_ns").min() - pl.col("start_ns").max()).alias("common_ns"),
        pl.col("inferences").sum(),
        pl.col("samples_ns").list.median().median().alias("latency_ns"),
        pl.when(peak.is_not_null().all()).then(peak.sum()).alias("peak_memory_bytes"),
        # Only the row of the first process has them.
        (pl.col("device_energy_mj") / pl.col("device_energy_ns"))
        .drop_nulls()
        .first()
        .alias(_POWER),
        _is_placed().all(ignore_nulls=False).alias("is_placed"),
        pl.col("flags").explode().drop_nulls().unique().sort().alias("process_flags"),
    )
    overlap = pl.when(pl.col("span_ns") > 0).then(
        pl.col("common_ns").clip(lower_bound=0) / pl.col("span_ns")
    )
    return _with_rates(_judged(sets.with_columns(overlap=overlap)))


_POWER = "mj_per_ns"


def _is_placed() -> pl.Expr:
    """Whether a process computed where it was asked to; null if nothing says so.

    On a processor its CPUs are those that it was given, if any. On another device the driver lists
    memory of the process there.
    """
    given = pl.col("given_cpus").list.sort() == pl.col("cpus").list.sort()
    on_processor = pl.when(pl.col("given_cpus").is_null()).then(pl.lit(value=True)).otherwise(given)
    return (
        pl.when(pl.col("core_use").is_not_null())
        .then(on_processor)
        .otherwise(pl.col("process_memory_bytes") > 0)
    )


def _judged(sets: pl.DataFrame) -> pl.DataFrame:
    """Adds `flags` and `holds`: only the work of a set that holds is summed."""
    failed = ~pl.col("is_ok") | (pl.col("n_measured") < pl.col("n_replicas"))
    doubts = {
        FAILED: failed,
        NO_OVERLAP: ~failed & (pl.col("overlap").fill_null(0) < MIN_OVERLAP),
        ELSEWHERE: ~failed & ~pl.col("is_placed").fill_null(value=True),
        PLACE_UNKNOWN: ~failed & pl.col("is_placed").is_null(),
    }
    own = [pl.when(doubt).then(pl.lit(name)) for name, doubt in doubts.items()]
    flags = pl.concat_list(*own).list.drop_nulls().list.concat(pl.col("process_flags"))
    is_void = pl.any_horizontal(doubts[name] for name in (FAILED, NO_OVERLAP, ELSEWHERE))
    return sets.with_columns(flags=flags, holds=~is_void)


def _with_rates(sets: pl.DataFrame) -> pl.DataFrame:
    n_items = pl.col("inferences") * pl.col("items")
    span_s = pl.col("span_ns") / NS_PER_S
    joules = pl.col(_POWER) * pl.col("span_ns") / _MJ_PER_J
    rates = {"items_per_s": n_items / span_s, "j_per_item": joules / n_items}
    return sets.with_columns(
        pl.when(pl.col("holds") & (n_items > 0)).then(rate).alias(name)
        for name, rate in rates.items()
    )

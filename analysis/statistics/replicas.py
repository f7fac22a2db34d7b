"""Part `replicas` of table `scaling`: several processes of one model at once, against one."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.two_samples import figures_of, ratios_of
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.cell_values import MIN_REPEATS, banners, with_one_cell
from fleetrank.analysis.stored.selection import known_workload
from fleetrank.analysis.stored.side_tables import REPLICA_RUNS
from fleetrank.analysis.tables.table import CellRow, Table, explained
from fleetrank.foundation.errors import count_of
from fleetrank.foundation.supervised_child import CoreUse
from fleetrank.foundation.vocabulary import BYTES_PER_MIB, NS_PER_MS, NS_PER_S

# Figures of sets: processes of one cell that were started together.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFigures(CellRow):
    """The sets of one size of one model, platform and workload; `None` has its `reason`."""

    workload: str
    n_replicas: int
    core_use: str | None
    items_per_s: float | None
    over_one: float | None
    over_one_low: float | None
    over_one_high: float | None
    than_one: str | None
    latency_p50_ms: float | None
    latency_over_one: float | None
    overlap: float | None
    memory_mib: float | None
    j_per_item: float | None
    item: str
    items_low_per_s: float | None
    items_high_per_s: float | None
    n_sets: int
    n_left_out: int
    flags: tuple[str, ...]
    reason: str | None


def replicas_table(session: Session) -> Table:
    """One row for each model, platform, workload and number of processes.

    Raises:
        NoDataError: no selected cell was run in several processes.
    """
    runs, cells, left_out = _selected(session)
    sets = set_figures(runs)
    places = sets.group_by(PLACE, maintain_order=True)
    rows = [row for _, place in places for row in _rows(place)]
    rows.sort(key=lambda one: (one.model, one.platform_key, one.workload, one.n_replicas))
    n_left_out = sets.filter(~pl.col("holds")).height
    void = f", {n_left_out} of them left out" if n_left_out else ""
    counted = f"{count_of(sets.height, 'set')} of processes that started together{void}."
    return Table.of(
        ReplicaFigures,
        rows,
        title="Several processes on one device",
        notes=(*banners(cells), counted, *left_out, *_sharing(sets), *_warning(sets)),
        explanation=explained(
            "scaling/replicas",
            {
                "overlap_percent": 100 * MIN_OVERLAP,
                "no_overlap": NO_OVERLAP,
                "elsewhere": ELSEWHERE,
                "failed": FAILED,
            },
        ),
    )


def _selected(session: Session) -> tuple[pl.DataFrame, pl.DataFrame, tuple[str, ...]]:
    """The processes of the selected cells, these cells of every workload, and what is left out."""
    runs = newest_runs(session.side(REPLICA_RUNS))
    known = [name for name in session.chosen_workloads if name in set(runs["workload"])]
    found = [one for name in known if (one := session.cells_of(name)) is not None]
    columns = (*PLACE, "origin", "device", "cell_key")
    parts = [one.select(columns) for one in found]
    cells = pl.concat(parts) if parts else pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
    measured = cells.select(*PLACE, measured_cell="cell_key")
    chosen_runs, left_out = with_one_cell(runs.join(measured, on=PLACE, maintain_order="left"))
    if chosen_runs.is_empty():
        raise NoDataError(
            " ".join(("no selected model was run in several processes.", *left_out)).rstrip("."),
            "run it: `fleetrank run MODEL` with `replicas=1,2,4`, or `replicas: [1, 2, 4]` in a "
            "sweep",
        )
    return chosen_runs, cells.join(chosen_runs, on=PLACE, how="semi"), left_out


def _rows(sets: pl.DataFrame) -> Iterator[ReplicaFigures]:
    """The rows of one model, platform and workload."""
    alone = sets.filter(pl.col("holds") & (pl.col("n_replicas") == 1))
    for (n_replicas,), part in sets.group_by("n_replicas", maintain_order=True):
        held = part.filter("holds")
        low, high = _interval(_values(held, "items_per_s"))
        latency_ns, alone_ns = (_median(some, "latency_ns") for some in (held, alone))
        model, platform, workload = part.select(PLACE).row(0)
        against = over_one(_values(alone, "items_per_s"), _values(held, "items_per_s"))
        if not held.is_empty() and n_replicas == 1:
            against = replace(against, low=None, high=None)
        yield ReplicaFigures(
            model=model,
            platform_key=platform,
            workload=workload,
            n_replicas=int(str(n_replicas)),
            item=part["item"][0],
            items_per_s=_median(held, "items_per_s"),
            items_low_per_s=low,
            items_high_per_s=high,
            over_one=against.ratio,
            over_one_low=against.low,
            over_one_high=against.high,
            than_one=_than_one(against),
            latency_p50_ms=_over(latency_ns, NS_PER_MS),
            latency_over_one=_over(latency_ns, alone_ns),
            memory_mib=_over(_median(held, "peak_memory_bytes"), BYTES_PER_MIB),
            j_per_item=_median(held, "j_per_item"),
            overlap=min(part["overlap"].drop_nulls(), default=None),
            core_use=next(iter(part["core_use"].drop_nulls()), None),
            n_sets=held.height,
            n_left_out=part.height - held.height,
            flags=tuple(sorted(set(part["flags"].explode().drop_nulls()))),
            reason=_reason(held, alone),
        )


def _than_one(found: OverOne) -> str | None:
    if found.low is None or found.high is None:
        return None
    if found.low > 1 or found.high < 1:
        return "more" if found.low > 1 else "less"
    return "not shown"


def _reason(held: pl.DataFrame, alone: pl.DataFrame) -> str | None:
    """Why figures are missing."""
    if held.is_empty():
        return "no set holds: see flags"
    if alone.is_empty():
        return "no set of one process to compare with"
    if max(held.height, alone.height) < 2:
        return "n = 1: no interval of over_one from one set on each side"
    return None


def _interval(rates: Floats) -> tuple[float | None, float | None]:
    if rates.size < MIN_REPEATS:
        return None, None
    one = figures_of([rates], [False], [""])
    log, reach = float(one.logs[0]), float(one.reach[0])
    return math.exp(log - reach), math.exp(log + reach)


def _values(sets: pl.DataFrame, name: str) -> Floats:
    return sets[name].drop_nulls().to_numpy().astype(float)


def _median(sets: pl.DataFrame, name: str) -> float | None:
    values = _values(sets, name)
    return float(np.median(values)) if values.size else None


def _over(value: float | None, divisor: float | None) -> float | None:
    return None if value is None or not divisor else value / divisor


def _sharing(sets: pl.DataFrame) -> tuple[str, ...]:
    """One sentence about the sets whose processes have more threads than there are CPUs."""
    n = sets.filter(pl.col("core_use") == CoreUse.SHARED).height
    if not n:
        return ()
    return (f"In {count_of(n, 'set')} the processes have more threads than there are CPUs for "
            "them, and share all of them.",)  # fmt: skip


_WHY = {
    FAILED: "a process of it failed; `query` shows replica_error_message of replica_runs",
    NO_OVERLAP: f"its processes ran together for less than {100 * MIN_OVERLAP:.0f} % of its time; "
    "give more seconds, or fewer if a process reached its 500,000 inferences",
    ELSEWHERE: "a process computed on other cores or another device than asked for",
}


def _warning(sets: pl.DataFrame) -> tuple[str, ...]:
    """One sentence about the sets that are left out."""
    void = sets.filter(~pl.col("holds"))
    parts = []
    for flag, why in _WHY.items():
        n = void.filter(pl.col("flags").list.contains(flag)).height
        if n:
            parts.append(f"{count_of(n, 'set')} ({flag}: {why})")
    return (f"WARNING: not summed: {', '.join(parts)}.",) if parts else ()

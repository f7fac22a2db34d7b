"""Table `scaling`: how latency, rate and memory change with batch, length, image size, threads."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session, once_a_session
from fleetrank.analysis.stored.cell_values import banners
from fleetrank.analysis.stored.columns import FORMATS
from fleetrank.analysis.stored.load import IS_SUSTAINED, valid_attempts
from fleetrank.analysis.stored.scope import of_every_workload
from fleetrank.analysis.stored.selection import WORKLOAD, exclusion_notes, known_workload
from fleetrank.analysis.tables.table import CellRow, Table, explained, frame_of
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.foundation.cpus import kinds_in, parse_cpu_list, unlike_cores
from fleetrank.foundation.errors import count_of
from fleetrank.foundation.inputs import Workload, WorkloadKind
from fleetrank.foundation.vocabulary import BYTES_PER_MIB, NS_PER_MS, NS_PER_S, WEIGHT_BYTES

# Arithmetic of one curve: cost and rate of one model on one platform at growing values.

_AXIS = TABLES["scaling"].settings["over"]
KNEE_GAIN = 1.2
"""Twice the batch must give this times the rate; below it a larger batch mostly adds latency."""
MIN_POINTS = 3
"""A line through two points has no residual, so its R2 says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerFit:
    """The line log(y) = a + slope log(x), by least squares.

    Attributes:
        r2: share of the variance of log(y) on the line; `None` where y does not vary.
    """

    slope: float
    r2: float | None


def power_fit(x: Sequence[float], y: Sequence[float]) -> PowerFit | None:
    """Fits a power of x to y; both (n,) and above 0.

    A slope of 1 is proportional growth, 0 is none. `None` with fewer than `MIN_POINTS` different x:
    nothing is said about values outside the range of x.
    """
    if len(set(x)) < MIN_POINTS:
        return None
    log_x, log_y = np.log(np.asarray(x, dtype=float)), np.log(np.asarray(y, dtype=float))
    from_x, from_y = log_x - log_x.mean(), log_y - log_y.mean()
    slope = float(from_x @ from_y / (from_x @ from_x))
    total = float(from_y @ from_y)
    residual = float(((from_y - slope * from_x) ** 2).sum())
    is_flat = total <= np.finfo(float).eps * len(log_y)
    return PowerFit(slope=slope, r2=None if is_flat else max(1 - residual / total, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """Where doubling stops to pay.

    Attributes:
        value: the smallest value whose double has less than `KNEE_GAIN` times its rate.
        reason: why there is none; `None` if there is one.
    """

    value: int | None
    reason: str | None


def find_knee(rates: Mapping[int, float]) -> Knee:
    """Finds the knee of rates by value, such as images per second by batch.

    Only measured values count. If the double of a value was not measured, the knee could be there,
    so a larger one is not called the smallest.

    Source: the efficiency framework that this program follows: "knee = smallest B with
        tps(2B)/tps(B) < 1.2".
    """
    values = sorted(rates)
    if len(values) < 2:
        return Knee(value=None, reason="one value measured")
    for value in values[:-1]:
        double = rates.get(2 * value)
        if double is None:
            return Knee(value=None, reason=f"{2 * value} not measured")
        if double / rates[value] < KNEE_GAIN:
            return Knee(value=value, reason=None)
    return Knee(value=None, reason=f"none up to {values[-1]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What fits into memory.

    Attributes:
        largest: the largest value that was measured below the first that ran out of memory;
            `None` if no value ran out of memory, or none below it was measured.
        first_too_large: the smallest value that ran out of memory; `None` without one.
    """

    largest: int | None
    first_too_large: int | None
    reason: str | None = None


def find_fit(measured: Sequence[int], out_of_memory: Sequence[int]) -> Fit:
    """The largest value that fits, by the values that were measured and those that failed."""
    if not out_of_memory:
        return Fit(largest=None, first_too_large=None)
    first = min(out_of_memory)
    below = [value for value in measured if value < first]
    above = [value for value in measured if value > first]
    reason = f"{first} ran out of memory, {min(above)} did not" if above else None
    return Fit(largest=max(below, default=None), first_too_large=first, reason=reason)


# The measured points of every curve: one model on one platform, at several values of one axis.

OUT_OF_MEMORY = "out_of_memory"
_PLACE = ("model", "platform_key", "card_sha256", "weights_id")
_FACTS = (*_PLACE, "device", "origin", "batch", "input_size", "axes", "threads", "sweep_id")


class Axis(StrEnum):
    """What grows along a curve; over threads it is the number of cores that work."""

    BATCH = "batch"
    LENGTH = "length"
    INPUT_SIZE = "input_size"
    THREADS = "threads"


CURVE = ("over", "model", "platform", "workload", "card_sha256", "weights_id")
"""Columns that are equal for the points of one curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How an axis is read from a cell: its value, and platform and workload without it."""

    value: pl.Expr
    platform: pl.Expr
    workload: Callable[[Workload], str | None]


_HAS_KNEE = (Axis.BATCH, Axis.THREADS)
"""Their doubles are compared, and their values with 1."""
_LENGTHS = frozenset({WorkloadKind.PREFILL, WorkloadKind.DECODE, WorkloadKind.ENCODE})
_FORMS = {
    Axis.BATCH: _Form(
        value=pl.coalesce("trained", "batch"),
        platform=pl.col("platform_key").str.replace(r"/b\d+/t", "/b*/t"),
        workload=lambda one: (
            str(one) if one.batch is None else str(one).replace(f"@{one.batch}", "@*")
        ),
    ),
    Axis.LENGTH: _Form(
        value=pl.col("length"),
        platform=pl.col("platform_key"),
        workload=lambda one: f"{one.kind}@*" if one.kind in _LENGTHS else None,
    ),
    Axis.INPUT_SIZE: _Form(
        value=pl.col("input_size"),
        platform=pl.col("platform_key").str.replace(r"/input_size=\d+$", ""),
        workload=lambda one: str(one) if one.kind is WorkloadKind.IMAGE else None,
    ),
    Axis.THREADS: _Form(
        value=pl.col("threads"),
        platform=pl.col("platform_key").str.replace(r"/t\d+/", "/t*/"),
        workload=str,
    ),
}


@once_a_session
def scaling_points(session: Session) -> pl.DataFrame:
    """One row for each value of each curve, sorted by curve and value.

    A curve has two measured values, or one below a value that ran out of memory.

    Columns, beside those of `CURVE`:
        value: batch, tokens (slots of the cache for `decode`), or pixels of height and width.
        item: `sample`, or `token` of a workload with tokens.
        latency_ns, latency_low_ns, latency_high_ns, peak_memory_bytes, state_bytes, n_repeats,
            flags: as in `cell_values.cell_values`; null for a cell without a valid attempt.
        items_per_s: items of one inference over its latency.
        rate_ratio: items_per_s over that of the smallest measured value of the curve.
        efficiency: only over batch or threads, if 1 was measured: (rate(n) / rate(1)) / n.
        gain: items_per_s at twice the value over that at the value; null if it was not measured.
        end: kind of the error of a cell without a valid attempt; null for a measured one.
        cpus: CPU numbers it was pinned to, as `0,1`; null if the system chose or it is not known.
        unlike_cores: what `cpus.unlike_cores` says of the curve, over threads only.

    Raises:
        NoDataError: no model was measured at two values of an axis.
    """
    # All workloads, or the one that the user chose; measured cells and failed ones.
    parts = [part for name in session.chosen_workloads for part in _of_workload(session, name)]
    cells = pl.concat(parts, how="diagonal") if parts else pl.DataFrame()
    has_any = "latency_ns" in cells.columns
    points = pl.concat([_of_axis(cells, axis) for axis in Axis]) if has_any else cells
    if not has_any or points.is_empty():
        raise NoDataError(
            "no platform has a model at two batches, lengths, image sizes or numbers of threads",
            "measure several in one sweep, such as `batch: [1, 2, 4, 8]`, "
            "`workloads: [prefill@64, prefill@128]`, `axes: {input_size: [160, 224]}` or "
            "`threads: [1, 2, 4]`",
        )
    return _with_cores(points, session)


def _of_workload(session: Session, name: str) -> Iterator[pl.DataFrame]:
    workload = Workload.parse(name)
    length = workload.context_tokens or workload.prompt_tokens
    facts = (
        pl.lit(name).alias(WORKLOAD),
        pl.lit(length, dtype=pl.Int64).alias("length"),
        pl.lit(workload.batch, dtype=pl.Int64).alias("trained"),
        pl.lit("sample" if workload.length is None else "token").alias("item"),
    )
    measured = session.cells_of(name)
    if measured is not None:
        # Two cards or weights of one name in one sweep are two curves, by `CURVE`.
        yield measured.select(
            *_FACTS, *facts, "latency_ns", "latency_low_ns", "latency_high_ns",
            "peak_memory_bytes", "state_bytes", "n_repeats", "flags",
            pl.coalesce("tokens_per_inference", pl.lit(workload.batch), "batch").alias("items"),
        )  # fmt: skip
    ends = _ends(session.unlimited.of_workload(name), session.unlimited.cells_of(name))
    if not ends.is_empty():
        yield ends.with_columns(facts)


def _ends(session: Session, measured: pl.DataFrame | None) -> pl.DataFrame:
    """Cells without a valid attempt, with the kind of their last error as `end`."""
    failed = (
        session.attempts.filter(pl.col("status") != "ok", pl.col("error_kind").is_not_null())
        .sort("started_utc", "repeat", "attempt", nulls_last=False)
        .group_by(_PLACE, maintain_order=True)
        .agg(
            *(pl.col(name).last() for name in _FACTS if name not in _PLACE),
            pl.col("error_kind").last().alias("end"),
        )
        .collect()
    )
    if measured is None:
        return failed
    return failed.join(measured.select(_PLACE), on=_PLACE, how="anti", nulls_equal=True)


def _of_axis(cells: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """The points of one axis; of a value measured twice the one whose axis was asked for."""
    form = _FORMS[axis]
    names = {name: form.workload(Workload.parse(name)) for name in cells[WORKLOAD].unique()}
    frame = cells.with_columns(
        pl.lit(str(axis)).alias("over"),
        pl.col(WORKLOAD).replace_strict(names, return_dtype=pl.String),
        form.platform.alias("platform"),
        form.value.cast(pl.Int64).alias("value"),
    ).drop_nulls([WORKLOAD, "value"])
    if axis is Axis.THREADS:
        frame = _with_any_cores(frame)
    if "end" not in frame.columns:
        frame = frame.with_columns(pl.lit(None, dtype=pl.String).alias("end"))
    frame = frame.sort(pl.col("end").is_null(), pl.col("axes").is_not_null(), descending=True)
    frame = frame.unique([*CURVE, "value"], keep="first", maintain_order=True)
    n_measured = pl.col("end").is_null().sum().over(CURVE)
    has_limit = (pl.col("end") == OUT_OF_MEMORY).any().over(CURVE)
    is_curve = (n_measured > 1) | ((n_measured == 1) & has_limit.fill_null(value=False))
    return _with_rates(frame.filter(is_curve).sort([*CURVE, "value"]), axis)


def _with_any_cores(frame: pl.DataFrame) -> pl.DataFrame:
    """Gives curves over threads their platforms; their points may be pinned to other cores.

    Platforms that differ in their cores alone are one curve, unless a number of threads was
    measured on several of them: then each is its own curve, and those with one point are joined.
    """
    own, single = pl.col("platform"), pl.col("single")
    joint = [name for name in CURVE if name != "platform"] + ["joined"]
    frame = frame.with_columns(
        own.str.replace(r"/t\*/a[^/]*/", "/t*/a*/").alias("joined"),
        pl.when(pl.col("value").n_unique().over(CURVE) == 1).then(own).alias("single"),
    )
    # How many places the number of threads has that has most of them.
    n_places, n_single = (
        one.drop_nulls().n_unique().over(*joint, "value").alias(name)
        for one, name in ((own, "n_places"), (single, "n_single"))
    )
    frame = frame.with_columns(n_places, n_single)
    most_places, most_single = (pl.col(name).max().over(joint) for name in ("n_places", "n_single"))
    is_alone = own.n_unique().over(joint) == 1
    is_joined = (most_places == 1) | (single.is_not_null() & (most_single == 1))
    return frame.with_columns(
        pl.when(is_joined & ~is_alone).then("joined").otherwise(own).alias("platform")
    )


def _with_cores(points: pl.DataFrame, session: Session) -> pl.DataFrame:
    """Adds `cpus` and `unlike_cores`, from the rows of the points."""
    place = ["platform_key", "sweep_id"]
    rows = session.frame.filter(pl.col("status") == "ok").select(*place, "affinity", "device_facts")
    cores = rows.unique(place, keep="first").collect()
    points = points.join(cores, on=place, how="left", maintain_order="left")
    said: list[str | None] = []
    for curve in points.partition_by(CURVE, maintain_order=True):
        measured = curve.filter(pl.col("end").is_null())
        cpus = {n: parse_cpu_list(text or "") for n, text in measured["value", "affinity"].rows()}
        facts = next(iter(measured["device_facts"].drop_nulls()), "{}")
        is_marked = curve["over"][0] == Axis.THREADS
        text = unlike_cores(cpus, kinds_in(json.loads(facts))) if is_marked else None
        said += [text] * curve.height
    return (
        points.drop("device_facts")
        .with_columns(pl.Series("unlike_cores", said, dtype=pl.String))
        .rename({"affinity": "cpus"})
    )


def _with_rates(frame: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    is_timed = pl.col("latency_ns") > 0
    rate = pl.when(is_timed).then(pl.col("items") / (pl.col("latency_ns") / NS_PER_S))
    frame = frame.with_columns(rate.alias("items_per_s"))
    doubles = frame.select(*CURVE, "value", pl.col("items_per_s").alias("double"))
    frame = (
        frame.with_columns((2 * pl.col("value")).alias("twice"))
        .join(
            doubles, left_on=[*CURVE, "twice"], right_on=[*CURVE, "value"], how="left",
            nulls_equal=True, maintain_order="left",
        )
    )  # fmt: skip
    first = pl.col("items_per_s").drop_nulls().first().over(CURVE)
    at_one = pl.col("items_per_s").filter(pl.col("value") == 1).first().over(CURVE)
    efficiency = pl.col("items_per_s") / at_one / pl.col("value")
    return frame.select(
        *CURVE, "value", "item", "device", "origin", "sweep_id", "platform_key",
        "latency_ns", "latency_low_ns", "latency_high_ns", "items_per_s",
        (pl.col("items_per_s") / first).alias("rate_ratio"),
        (efficiency if axis in _HAS_KNEE else pl.lit(None, dtype=pl.Float64)).alias("efficiency"),
        (pl.col("double") / pl.col("items_per_s")).alias("gain"),
        "peak_memory_bytes", "state_bytes", "n_repeats", "flags", "end",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """How latency, rate and memory of one model on one platform grow; `None` has its `reason`."""

    over: str
    model: str
    platform: str
    workload: str
    n_points: int
    smallest: int | None
    largest: int | None
    largest_that_fits: int | None
    out_of_memory_at: int | None
    slope: float | None
    r2: float | None
    knee: int | None
    item: str
    best_per_s: float | None
    best_at: int | None
    first_memory_mib: float | None
    last_memory_mib: float | None
    other_ends: str | None
    n_sweeps: int
    flags: tuple[str, ...]
    reason: str | None


def scaling_table(session: Session) -> Table:
    """One row for each curve.

    Raises:
        NoDataError: no model was measured at two values of an axis.
    """
    points, title, notes = _chosen_points(session)
    return Table.of(
        Curve,
        map(_curve, points.partition_by(CURVE, maintain_order=True)),
        title=title,
        notes=notes,
        explanation=explained("scaling/curves", {"knee_gain": KNEE_GAIN}),
    )


def points_table(session: Session) -> Table:
    """One row for each point of the curves; raises as `scaling_table`."""
    points, title, notes = _chosen_points(session)
    return Table(
        title=f"{title}, every point",
        frame=_shown(points),
        notes=notes,
        explanation=explained("scaling/points"),
    )


def _chosen_points(session: Session) -> tuple[pl.DataFrame, str, tuple[str, ...]]:
    """The points of the chosen axis, and the title and notes of their tables."""
    points = scaling_points(session)
    if axis := _AXIS.chosen(session.selection):
        points = points.filter(pl.col("over") == axis)
        if points.is_empty():
            raise NoDataError(
                f"no model was measured at two values of {axis} on one platform",
                "leave out `over`, or measure several values in one sweep",
            )
    title = f"Scaling over {axis}" if axis else "Scaling"
    measured = points.filter(pl.col("end").is_null())
    dropped = session.dropped_notes(session.chosen_workloads)
    notes = (*banners(measured), *_notes(points), *dropped)
    return points, title, notes


def _notes(points: pl.DataFrame) -> Iterator[str]:
    n_ends = points.filter(pl.col("end") == OUT_OF_MEMORY).height
    curves = points.select(CURVE).unique().height
    ends = f"; {count_of(n_ends, 'cell')} ran out of memory" if n_ends else ""
    yield f"{count_of(curves, 'curve')}, {count_of(points.height, 'cell')}{ends}."
    several = points.group_by(CURVE).agg(pl.col("sweep_id").n_unique().alias("n"))
    if (n := several.filter(pl.col("n") > 1).height) > 0:
        yield (
            f"{count_of(n, 'curve')} from several sweeps: a change of the device between them "
            "looks like growth."
        )
    marked = points.drop_nulls("unlike_cores").select("device", "unlike_cores")
    yield from (f"{device}: {said}." for device, said in marked.unique(maintain_order=True).rows())


def _shown(points: pl.DataFrame) -> pl.DataFrame:
    return points.select(
        "over", "model", "platform", "workload", "value",
        (pl.col("latency_ns") / NS_PER_MS).alias("latency_p50_ms"),
        (pl.col("latency_low_ns") / NS_PER_MS).alias("latency_low_ms"),
        (pl.col("latency_high_ns") / NS_PER_MS).alias("latency_high_ms"),
        "item", "items_per_s", "rate_ratio", "efficiency", "gain",
        (pl.col("peak_memory_bytes") / BYTES_PER_MIB).alias("peak_memory_mib"),
        (pl.col("state_bytes") / BYTES_PER_MIB).alias("state_mib"),
        "n_repeats", "flags", "cpus", pl.col("end").alias("reason"),
    )  # fmt: skip


def _curve(frame: pl.DataFrame) -> Curve:
    timed = frame.filter(pl.col("items_per_s").is_not_null())
    values, rates = timed["value"].to_list(), timed["items_per_s"].to_list()
    fitted = power_fit(values, timed["latency_ns"].to_list())
    over = Axis(frame["over"][0])
    knee = find_knee(dict(zip(values, rates, strict=True))) if over in _HAS_KNEE else None
    failed = frame.filter(pl.col("end").is_not_null())
    too_large = failed.filter(pl.col("end") == OUT_OF_MEMORY)["value"].to_list()
    fit = find_fit(values, too_large)
    best = max(range(len(rates)), key=rates.__getitem__, default=None)
    memory = (timed["peak_memory_bytes"] / BYTES_PER_MIB).to_list()
    reasons = (
        None if fitted else f"n = {len(set(values))}: no slope below 3 points",
        knee and knee.reason and f"no knee: {knee.reason}",
        fit.reason,
        frame["unlike_cores"][0],
    )
    return Curve(
        over=over.value,
        model=frame["model"][0],
        platform=frame["platform"][0],
        workload=frame["workload"][0],
        item=frame["item"][0],
        n_points=len(values),
        smallest=min(values, default=None),
        largest=max(values, default=None),
        slope=fitted.slope if fitted else None,
        r2=fitted.r2 if fitted else None,
        knee=knee.value if knee else None,
        best_per_s=None if best is None else rates[best],
        best_at=None if best is None else values[best],
        first_memory_mib=memory[0] if memory else None,
        last_memory_mib=memory[-1] if memory else None,
        largest_that_fits=fit.largest,
        out_of_memory_at=fit.first_too_large,
        other_ends=_other_ends(failed),
        n_sweeps=frame["sweep_id"].n_unique(),
        flags=tuple(frame["flags"].explode().drop_nulls().unique().sort()),
        reason="; ".join(one for one in reasons if one) or None,
    )


def _other_ends(failed: pl.DataFrame) -> str | None:
    """`16: timed_out`, joined by commas."""
    others: Sequence[tuple[int, str]] = (
        failed.filter(pl.col("end") != OUT_OF_MEMORY).select("value", "end").rows()
    )
    return ", ".join(f"{value}: {end}" for value, end in others) or None


# Parts `memory` and `files`: what the peak holds (weights, state, the rest), and files by format.


def memory_table(session: Session) -> Table:
    """The parts of the peak of each model on each platform."""
    scope = session.cells
    metrics = ", ".join(scope.cells["memory_metric"].drop_nulls().unique().sort())
    note = f"Memory metric: {metrics or 'none'}; compare only figures of one metric."
    return Table(
        title="Memory, split",
        frame=_parts(_with_weights(scope.cells)),
        notes=(*scope.notes, note),
        explanation=explained("scaling/memory"),
    )


def files_table(session: Session) -> Table:
    """The sizes of exported files by model and format."""
    scope = session.cells
    return Table(
        title="Sizes of exported files",
        frame=_files(_with_weights(scope.cells)),
        notes=scope.notes,
        explanation=explained("scaling/files"),
    )


def _with_weights(cells: pl.DataFrame) -> pl.DataFrame:
    return cells.with_columns(_weights().alias("weights"))


def _weights() -> pl.Expr:
    bytes_each = pl.col("precision").replace_strict(
        dict(WEIGHT_BYTES), default=None, return_dtype=pl.Float64
    )
    return pl.coalesce(pl.col("weight_bytes").cast(pl.Float64), pl.col("parameters") * bytes_each)


def _parts(cells: pl.DataFrame) -> pl.DataFrame:
    peak = pl.col("peak_memory_bytes")
    parts = pl.col("weights") + pl.col("state_bytes").fill_null(0)
    is_below = peak < parts
    reason = (
        pl.when(peak.is_null())
        .then(pl.lit("the tool gives no memory figure"))
        .when(pl.col("weights").is_null())
        .then(pl.lit("number of parameters not known"))
        .when(is_below)
        .then(pl.lit("the peak is below weights and state"))
    )
    shown = {
        "weights_mib": pl.col("weights"),
        "state_mib": pl.col("state_bytes"),
        "rest_mib": pl.when(~is_below).then(peak - parts),
        "peak_memory_mib": peak,
        "load_peak_memory_mib": pl.col("load_peak_memory_bytes"),
        "reserved_mib": pl.col("reserved_memory_bytes"),
        "process_mib": pl.col("process_memory_bytes"),
        "file_mib": pl.col("artifact_bytes"),
    }
    return cells.select(
        "model", "platform_key",
        *((one / BYTES_PER_MIB).alias(name) for name, one in shown.items()),
        pl.col("artifact_format").alias("file_format"),
        "memory_metric", "n_repeats", reason.alias("reason"),
    )  # fmt: skip


def _files(cells: pl.DataFrame) -> pl.DataFrame:
    place = ("model", "precision", "workload")
    size = pl.col("artifact_bytes").cast(pl.Float64) / BYTES_PER_MIB
    return (
        cells.group_by(place)
        .agg(
            (pl.col("weights").median() / BYTES_PER_MIB).alias("weights_mib"),
            *(
                size.filter(pl.col("artifact_format") == name).median().alias(f"{name}_mib")
                for name in FORMATS
            ),
        )
        .sort(place)
    )


# Part `sustained`: the throughput of back-to-back inferences over a given time.

FloatArray = NDArray[np.float64]

SLOWED_SHARE = 0.9
"""A window of the run with less than this share of the first third's rate is slower than before.

Ten per cent: a governor's usual steps are larger, and the noise of a window of many runs smaller.
"""
_WINDOWS = 30
_MIN_RUNS = 6
_SUSTAINED_FACTS = ("model", "platform_key", "workload", "repeat", "origin", "device")
_BESIDE = (
    "clock_mhz_before", "clock_mhz_after", "temp_c_before", "temp_c_after", "power_mw_before",
    "power_mw_after", "throttle_reasons_after",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Thirds:
    """Rates of one sustained run, in runs a second.

    Attributes:
        slowed_after_s: the start of the first window from which on every window is slow; `None` if
            the run did not become slower, or has few runs.
    """

    first_per_s: float | None
    last_per_s: float | None
    slowed_after_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sustained(CellRow):
    """One repeat with runs for a given time; `None` is not known, or has its `reason`."""

    workload: str
    repeat: int
    n_runs: int | None
    item: str
    duration_s: float | None
    items_per_s: float | None
    first_third_per_s: float | None
    last_third_per_s: float | None
    drift: float | None
    slowed_after_s: float | None
    throttled_after_s: float | None
    basis: str | None
    reason: str | None


def thirds(samples_ns: FloatArray) -> Thirds:
    """Compares first and last third of the time of a run; samples (n,) in order, above 0.

    A run counts where it ends. All `None` with fewer than 6 runs.
    """
    if len(samples_ns) < _MIN_RUNS:
        return Thirds(first_per_s=None, last_per_s=None, slowed_after_s=None)
    ends_ns = np.cumsum(samples_ns)
    total_ns = float(ends_ns[-1])
    n_first = max(int(np.searchsorted(ends_ns, total_ns / 3, side="right")), 1)
    n_before = int(np.searchsorted(ends_ns, 2 * total_ns / 3, side="right"))
    n_before = min(n_before, len(ends_ns) - 1)
    start_ns = float(ends_ns[n_before - 1]) if n_before else 0.0
    first = n_first / float(ends_ns[n_first - 1]) * NS_PER_S
    last = (len(ends_ns) - n_before) / (total_ns - start_ns) * NS_PER_S
    slowed_s = _slowed_after_s(ends_ns / NS_PER_S, first)
    return Thirds(first_per_s=first, last_per_s=last, slowed_after_s=slowed_s)


def windows(ends_s: FloatArray, n_windows: int = _WINDOWS) -> tuple[FloatArray, FloatArray]:
    """Starts in seconds and rates in runs a second of windows of whole runs, (n,) each.

    Windows have about equal durations, and each begins and ends with a run, so that a long run
    does not look like a window without any. There are at most as many windows as runs.
    """
    wanted = np.linspace(0, float(ends_s[-1]), n_windows + 1)[1:]
    last = np.unique(np.minimum(np.searchsorted(ends_s, wanted), len(ends_s) - 1))
    closing = ends_s[last]
    starts = np.concatenate([[0.0], closing[:-1]])
    counts = np.diff(np.concatenate([[-1], last]))
    return starts, counts / (closing - starts)


def _slowed_after_s(ends_s: FloatArray, first_per_s: float) -> float | None:
    starts, rates = windows(ends_s)
    is_slow = rates < SLOWED_SHARE * first_per_s
    if not is_slow[-1]:
        return None
    fast = np.flatnonzero(~is_slow)
    return float(starts[fast[-1] + 1]) if fast.size else float(starts[0])


@once_a_session
def sustained_rows(session: Session) -> pl.DataFrame:
    """The repeats of sustained runs, one row each, with their samples, sorted.

    Raises:
        NoDataError: no selected row has runs for a given time.
    """
    # Every workload: a curve of one does not disturb that of another.
    chosen = [session.of_workload(name) for name in session.chosen_workloads]
    parts = [
        valid_attempts(part.attempts.filter(IS_SUSTAINED))
        .select(
            *(name for name in _SUSTAINED_FACTS if name != "workload"),
            known_workload().alias("workload"),
            pl.coalesce("tokens_per_inference", "batch").alias("items"),
            pl.when(pl.col("tokens_per_inference").is_null())
            .then(pl.lit("sample")).otherwise(pl.lit("token")).alias("item"),
            "samples_ns", "sample_count", "latency_mean_ns", "sustained_ns", "throttled_after_ns",
            *_BESIDE,
        )
        .collect()
        for part in chosen
    ]  # fmt: skip
    rows = pl.concat(parts) if parts else pl.DataFrame()
    if rows.is_empty():
        raise NoDataError(
            "no selected row has sustained runs",
            "measure with `measure: {min_time_s: 60}` in the sweep file",
        )
    return rows.sort("model", "platform_key", "workload", "repeat")


def sustained_table(session: Session) -> Table:
    """One row for each repeat with runs for a given time.

    Raises:
        NoDataError: there is none.
    """
    table = sustained_as_table(sustained_rows(session))
    rows = of_every_workload(session.frame, session.selection).filter(
        known_workload().is_in(session.chosen_workloads), IS_SUSTAINED
    )
    return replace(table, notes=(*table.notes, *exclusion_notes(rows)))


def sustained_as_table(rows: pl.DataFrame) -> Table:
    """The table of rows that `sustained_rows` gives."""
    frame = frame_of(Sustained, map(_sustained, rows.iter_rows(named=True)))
    frame = frame.with_columns(rows.select(_BESIDE))
    return Table(
        title="Sustained throughput",
        frame=frame.select(pl.exclude("reason"), "reason"),
        notes=(*banners(rows), f"{rows.height} sustained runs, one row each."),
        explanation=explained(
            "scaling/sustained", {"n_windows": _WINDOWS, "slowed_percent": 100 * SLOWED_SHARE}
        ),
    )


def _sustained(row: dict[str, Any]) -> Sustained:
    samples = np.asarray(row["samples_ns"] or [], dtype=float)
    items, n_runs = row["items"], row["sample_count"]
    wall_s, basis = _duration_s(row, samples)
    parts = thirds(samples[samples > 0])
    first, last = (
        None if rate is None or items is None else rate * items
        for rate in (parts.first_per_s, parts.last_per_s)
    )
    is_counted = wall_s and items is not None and n_runs is not None
    throttled_ns, reason = row["throttled_after_ns"], None
    if samples.size == 0:
        reason = "the tool gives no samples: no drift"
    elif samples.size < _MIN_RUNS:
        reason = f"n = {samples.size} runs: no thirds below {_MIN_RUNS}"
    return Sustained(
        model=row["model"],
        platform_key=row["platform_key"],
        workload=row["workload"],
        repeat=row["repeat"],
        item=row["item"],
        n_runs=n_runs,
        duration_s=wall_s,
        items_per_s=items * float(n_runs) / wall_s if is_counted else None,
        first_third_per_s=first,
        last_third_per_s=last,
        drift=None if first is None or last is None else last / first - 1,
        slowed_after_s=parts.slowed_after_s,
        throttled_after_s=None if throttled_ns is None else throttled_ns / NS_PER_S,
        basis=basis,
        reason=reason,
    )


def _duration_s(row: dict[str, Any], samples: FloatArray) -> tuple[float | None, str | None]:
    """How long the runs took, and what that is; `None` without any figure."""
    if row["sustained_ns"] is not None:
        return row["sustained_ns"] / NS_PER_S, "wall clock"
    mean_ns, count = row["latency_mean_ns"], row["sample_count"]
    if mean_ns is None or count is None:
        return None, None
    return mean_ns * count / NS_PER_S, "sum of runs" if samples.size else "count x mean of a tool"

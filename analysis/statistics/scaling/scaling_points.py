"""The measured points of every curve: one model on one platform, at several values of one axis."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session, once_a_session
from fleetrank.analysis.statistics.scaling.curves import find_fit, find_knee, power_fit
from fleetrank.analysis.stored.chosen_workload import WORKLOAD
from fleetrank.foundation.cpus import kinds_in, parse_cpu_list, unlike_cores
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_S
from fleetrank.foundation.workload import Workload, WorkloadKind

OUT_OF_MEMORY = "out_of_memory"
_PLACE = ("model", "platform_key", "card_sha256", "weights_id")
_FACTS = (*_PLACE, "device", "origin", "batch", "input_size", "axes", "threads", "sweep_id")


class GrowingAxis(StrEnum):
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


_HAS_KNEE = (GrowingAxis.BATCH, GrowingAxis.THREADS)
"""Their doubles are compared, and their values with 1."""
_LENGTHS = frozenset({WorkloadKind.PREFILL, WorkloadKind.DECODE, WorkloadKind.ENCODE})
_FORMS = {
    GrowingAxis.BATCH: _Form(
        value=pl.coalesce("trained", "batch"),
        platform=pl.col("platform_key").str.replace(r"/b\d+/t", "/b*/t"),
        workload=lambda one: (
            str(one) if one.batch is None else str(one).replace(f"@{one.batch}", "@*")
        ),
    ),
    GrowingAxis.LENGTH: _Form(
        value=pl.col("length"),
        platform=pl.col("platform_key"),
        workload=lambda one: f"{one.kind}@*" if one.kind in _LENGTHS else None,
    ),
    GrowingAxis.INPUT_SIZE: _Form(
        value=pl.col("input_size"),
        platform=pl.col("platform_key").str.replace(r"/input_size=\d+$", ""),
        workload=lambda one: str(one) if one.kind is WorkloadKind.IMAGE else None,
    ),
    GrowingAxis.THREADS: _Form(
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
    points = pl.concat([_of_axis(cells, axis) for axis in GrowingAxis]) if has_any else cells
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


def _of_axis(cells: pl.DataFrame, axis: GrowingAxis) -> pl.DataFrame:
    """The points of one axis; of a value measured twice the one whose axis was asked for."""
    form = _FORMS[axis]
    names = {name: form.workload(Workload.parse(name)) for name in cells[WORKLOAD].unique()}
    frame = cells.with_columns(
        pl.lit(str(axis)).alias("over"),
        pl.col(WORKLOAD).replace_strict(names, return_dtype=pl.String),
        form.platform.alias("platform"),
        form.value.cast(pl.Int64).alias("value"),
    ).drop_nulls([WORKLOAD, "value"])
    if axis is GrowingAxis.THREADS:
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
        is_marked = curve["over"][0] == GrowingAxis.THREADS
        text = unlike_cores(cpus, kinds_in(json.loads(facts))) if is_marked else None
        said += [text] * curve.height
    return (
        points.drop("device_facts")
        .with_columns(pl.Series("unlike_cores", said, dtype=pl.String))
        .rename({"affinity": "cpus"})
    )


def _with_rates(frame: pl.DataFrame, axis: GrowingAxis) -> pl.DataFrame:
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


def curve_of(frame: pl.DataFrame) -> Curve:
    """The curve through the points of one model on one platform."""
    timed = frame.filter(pl.col("items_per_s").is_not_null())
    values, rates = timed["value"].to_list(), timed["items_per_s"].to_list()
    fitted = power_fit(values, timed["latency_ns"].to_list())
    over = GrowingAxis(frame["over"][0])
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

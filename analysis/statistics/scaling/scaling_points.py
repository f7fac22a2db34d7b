"""The measured points of every curve: one model on one platform, at several values of one axis."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.chosen_workload import WORKLOAD
from fleetrank.foundation.inputs.workload import Workload, WorkloadKind
from fleetrank.foundation.units import NS_PER_S

OUT_OF_MEMORY = "out_of_memory"
_PLACE = ("model", "platform_key", "card_sha256", "weights_id")
_FACTS = (*_PLACE, "device", "origin", "batch", "input_size", "axes", "sweep_id")


class Axis(StrEnum):
    """What grows along a curve."""

    BATCH = "batch"
    LENGTH = "length"
    INPUT_SIZE = "input_size"


CURVE = ("over", "model", "platform", "workload", "card_sha256", "weights_id")
"""Columns that are equal for the points of one curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How an axis is read from a cell: its value, and platform and workload without it."""

    value: pl.Expr
    platform: pl.Expr
    workload: Callable[[Workload], str | None]


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
}


def scaling_points(session: Session) -> pl.DataFrame:
    """One row for each value of each curve, sorted by curve and value.

    A curve has two measured values, or one below a value that ran out of memory.

    Columns, beside those of `CURVE`:
        value: batch, tokens (slots of the cache for `decode`), or pixels of height and width.
        item: `sample`, or `token` of a workload with tokens.
        latency_ns, latency_low_ns, latency_high_ns, peak_memory_bytes, state_bytes, n_repeats,
            flags: as in `cells_table.cell_values`; null for a cell without a valid attempt.
        items_per_s: items of one inference over its latency.
        rate_ratio: items_per_s over that of the smallest measured value of the curve.
        efficiency: only over batch, if batch 1 was measured: (rate(B) / rate(1)) / B, which is
            latency(1) / latency(B).
        gain: items_per_s at twice the value over that at the value; null if it was not measured.
        end: kind of the error of a cell without a valid attempt; null for a measured one.

    Raises:
        NoDataError: no model was measured at two values of an axis.
    """
    cells = _cells(session)
    has_any = "latency_ns" in cells.columns
    points = pl.concat([_of_axis(cells, axis) for axis in Axis]) if has_any else cells
    if not has_any or points.is_empty():
        raise NoDataError(
            "no model was measured at two batches, lengths or sizes of images on one platform",
            "measure several in one sweep, such as `batch: [1, 2, 4, 8]`, "
            "`workloads: [prefill@64, prefill@128]` or `axes: {input_size: [160, 224]}`",
        )
    return points


def _cells(session: Session) -> pl.DataFrame:
    """The cells of all workloads, or of the one that the user chose, measured or failed."""
    parts = [part for name in session.chosen_workloads for part in _of_workload(session, name)]
    return pl.concat(parts, how="diagonal") if parts else pl.DataFrame()


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
    if "end" not in frame.columns:
        frame = frame.with_columns(pl.lit(None, dtype=pl.String).alias("end"))
    frame = frame.sort(pl.col("end").is_null(), pl.col("axes").is_not_null(), descending=True)
    frame = frame.unique([*CURVE, "value"], keep="first", maintain_order=True)
    n_measured = pl.col("end").is_null().sum().over(CURVE)
    has_limit = (pl.col("end") == OUT_OF_MEMORY).any().over(CURVE)
    is_curve = (n_measured > 1) | ((n_measured == 1) & has_limit.fill_null(value=False))
    return _with_rates(frame.filter(is_curve).sort([*CURVE, "value"]), axis)


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
        *CURVE, "value", "item", "device", "origin", "sweep_id",
        "latency_ns", "latency_low_ns", "latency_high_ns", "items_per_s",
        (pl.col("items_per_s") / first).alias("rate_ratio"),
        (efficiency if axis is Axis.BATCH else pl.lit(None, dtype=pl.Float64)).alias("efficiency"),
        (pl.col("double") / pl.col("items_per_s")).alias("gain"),
        "peak_memory_bytes", "state_bytes", "n_repeats", "flags", "end",
    )  # fmt: skip

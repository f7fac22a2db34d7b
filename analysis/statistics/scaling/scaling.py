"""Table `scaling`: how latency, rate and memory grow with batch, length and size of images."""

from collections.abc import Iterator, Sequence

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.scaling.curves import KNEE_GAIN, find_fit, find_knee, power_fit
from fleetrank.analysis.statistics.scaling.scaling_points import (
    CURVE,
    OUT_OF_MEMORY,
    Axis,
    scaling_points,
)
from fleetrank.analysis.stored.cell_notes import banners, notes_on_flags
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_settings import AXIS, CURVES
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS
from fleetrank.foundation.wording import count_of

_CURVE_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "over": pl.String, "model": pl.String, "platform": pl.String, "workload": pl.String,
    "n_points": pl.Int64, "smallest": pl.Int64, "largest": pl.Int64,
    "largest_that_fits": pl.Int64, "out_of_memory_at": pl.Int64,
    "slope": pl.Float64, "r2": pl.Float64, "knee": pl.Int64,
    "item": pl.String, "best_per_s": pl.Float64, "best_at": pl.Int64,
    "first_memory_mib": pl.Float64, "last_memory_mib": pl.Float64,
    "other_ends": pl.String, "n_sweeps": pl.Int64, "flags": pl.List(pl.String), "reason": pl.String,
}  # fmt: skip
_AXES = (
    "over: what grows. batch: samples or sequences in one inference. length: tokens of a prompt, "
    "or slots of the cache of a step (workload decode). input_size: height and width of images in "
    "pixels."
)
_RANGE = (
    "Nothing is stated beyond the measured range, smallest to largest; a latency there can "
    "follow another line, for example when the weights no longer fit a cache."
)
_SLOPE = (
    "slope, r2: least squares of log latency on log value, from 3 points. 1: latency grows in "
    "proportion; 0: not at all; 2 is usual over input_size, because the area counts. An r2 below "
    "1 with a smooth curve is curvature, not noise: look at part=points."
)
_KNEE = (
    f"knee: the smallest batch B whose double has less than {KNEE_GAIN:g} times its rate; from "
    "there on a larger batch mostly adds latency. Empty with the reason if no measured batch is "
    "one, or if a double was not measured."
)
_FITS = (
    "largest_that_fits: the largest measured value below out_of_memory_at, the smallest value that "
    "ended with the error out_of_memory; both empty if no cell did. other_ends: values that ended "
    "with another error."
)
_EFFICIENCY = (
    "items_per_s: items of one inference over its latency; an item is a sample or a token. "
    "efficiency: E(B) = (rate(B) / rate(1)) / B; 1 means that B samples take as long as one. "
    "rate_ratio: the rate over that of the smallest value. gain: the rate at twice the value over "
    "the rate here."
)


def scaling_table(session: Session) -> Table:
    """One row for each curve, or for each of its points.

    Raises:
        NoDataError: no model was measured at two values of an axis.
    """
    points = session.once(scaling_points)
    if axis := AXIS.chosen(session.selection):
        points = points.filter(pl.col("over") == axis)
        if points.is_empty():
            raise NoDataError(
                f"no model was measured at two values of {axis} on one platform",
                "leave out `over`, or measure several values in one sweep",
            )
    title = f"Scaling over {axis}" if axis else "Scaling"
    measured = points.filter(pl.col("end").is_null())
    dropped = session.dropped_notes(session.chosen_workloads)
    notes = (*banners(measured), *_notes(points), *dropped, *notes_on_flags(measured))
    if CURVES.chosen(session.selection) == "points":
        return Table(
            title=f"{title}, every point",
            frame=_shown(points),
            notes=notes,
            explanation=(_AXES, _EFFICIENCY, _RANGE),
        )
    rows = [_curve_row(frame) for frame in points.partition_by(CURVE, maintain_order=True)]
    return Table(
        title=title,
        frame=pl.DataFrame(rows, schema=_CURVE_SCHEMA),
        notes=notes,
        explanation=(_AXES, _SLOPE, _KNEE, _FITS, _RANGE),
    )


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


def _shown(points: pl.DataFrame) -> pl.DataFrame:
    return points.select(
        "over", "model", "platform", "workload", "value",
        (pl.col("latency_ns") / NS_PER_MS).alias("latency_p50_ms"),
        (pl.col("latency_low_ns") / NS_PER_MS).alias("latency_low_ms"),
        (pl.col("latency_high_ns") / NS_PER_MS).alias("latency_high_ms"),
        "item", "items_per_s", "rate_ratio", "efficiency", "gain",
        (pl.col("peak_memory_bytes") / BYTES_PER_MIB).alias("peak_memory_mib"),
        (pl.col("state_bytes") / BYTES_PER_MIB).alias("state_mib"),
        "n_repeats", "flags", pl.col("end").alias("reason"),
    )  # fmt: skip


def _curve_row(frame: pl.DataFrame) -> dict[str, object]:
    timed = frame.filter(pl.col("items_per_s").is_not_null())
    values, rates = timed["value"].to_list(), timed["items_per_s"].to_list()
    fitted = power_fit(values, timed["latency_ns"].to_list())
    over = Axis(frame["over"][0])
    knee = find_knee(dict(zip(values, rates, strict=True))) if over is Axis.BATCH else None
    failed = frame.filter(pl.col("end").is_not_null())
    too_large = failed.filter(pl.col("end") == OUT_OF_MEMORY)["value"].to_list()
    fit = find_fit(values, too_large)
    best = max(range(len(rates)), key=rates.__getitem__, default=None)
    memory = (timed["peak_memory_bytes"] / BYTES_PER_MIB).to_list()
    reasons = (
        None if fitted else f"n = {len(set(values))}: no slope below 3 points",
        knee and knee.reason and f"no knee: {knee.reason}",
        fit.reason,
    )
    return {name: frame[name][0] for name in ("over", "model", "platform", "workload", "item")} | {
        "n_points": len(values),
        "smallest": min(values, default=None),
        "largest": max(values, default=None),
        "slope": fitted and fitted.slope,
        "r2": fitted and fitted.r2,
        "knee": knee and knee.value,
        "best_per_s": None if best is None else rates[best],
        "best_at": None if best is None else values[best],
        "first_memory_mib": memory[0] if memory else None,
        "last_memory_mib": memory[-1] if memory else None,
        "largest_that_fits": fit.largest,
        "out_of_memory_at": fit.first_too_large,
        "other_ends": _other_ends(failed),
        "n_sweeps": frame["sweep_id"].n_unique(),
        "flags": frame["flags"].explode().drop_nulls().unique().sort().to_list(),
        "reason": "; ".join(one for one in reasons if one) or None,
    }


def _other_ends(failed: pl.DataFrame) -> str | None:
    """`16: timed_out`, joined by commas."""
    others: Sequence[tuple[int, str]] = (
        failed.filter(pl.col("end") != OUT_OF_MEMORY).select("value", "end").rows()
    )
    return ", ".join(f"{value}: {end}" for value, end in others) or None

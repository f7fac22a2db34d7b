"""Table `scaling`: how latency, rate and memory change with batch, length, image size, threads."""

from collections.abc import Iterator

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.scaling.curves import KNEE_GAIN
from fleetrank.analysis.statistics.scaling.scaling_points import (
    CURVE,
    OUT_OF_MEMORY,
    Curve,
    curve_of,
    scaling_points,
)
from fleetrank.analysis.stored.cell_notes import banners
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS
from fleetrank.foundation.wording import count_of

_AXIS = TABLES["scaling"].settings["over"]


def scaling_table(session: Session) -> Table:
    """One row for each curve.

    Raises:
        NoDataError: no model was measured at two values of an axis.
    """
    points, title, notes = _chosen_points(session)
    return Table.of(
        Curve,
        map(curve_of, points.partition_by(CURVE, maintain_order=True)),
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

"""The points of the page's charts about growing values of an axis, and about long runs."""

import numpy as np
import polars as pl

from fleetrank.analysis.labels import labels_of
from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.html_table import Json
from fleetrank.analysis.report.page_tables import PageTables, titled
from fleetrank.analysis.report.points import BYTES_PER_MB, DIGITS
from fleetrank.analysis.statistics.scaling.sustained import windows
from fleetrank.foundation.units import NS_PER_MS, NS_PER_S
from fleetrank.foundation.wording import count_of

_MANY = 4
"""More models than that are counted: a caption has about three lines."""
_AXIS_TITLES = {
    "batch": "samples in one inference", "length": "tokens", "input_size": "pixels, height = width",
    "threads": "threads",
}  # fmt: skip


def drawn_curves(evidence: Evidence, tables: PageTables) -> pl.DataFrame | None:
    """The points that the charts show: the curves of the table, which names no device."""
    if tables.curves is None:
        return None
    names = evidence.shown.on_page(tables.curves.select("model").unique())["model"]
    rows = tables.curves.filter(pl.col("model").is_in(names.implode()))
    return None if rows.is_empty() else rows


def drawn_runs(evidence: Evidence) -> pl.DataFrame | None:
    """The sustained runs that chart and table show."""
    if evidence.sustained is None:
        return None
    rows = evidence.shown.on_page(evidence.sustained)
    return None if rows.is_empty() else rows


def curve_groups(evidence: Evidence, tables: PageTables) -> list[Json]:
    """For each axis, platform and workload: titles, rows and the values that failed.

    A row is [model, value, ms, items per second, peak MB]; a figure that is not known is null. A
    model is its number on the page, or its name if it was not measured in the page's workload.
    """
    points = drawn_curves(evidence, tables)
    if points is None:
        return []
    shown = points.with_columns(
        (pl.col("latency_ns") / NS_PER_MS).round_sig_figs(DIGITS).alias("ms"),
        pl.col("items_per_s").round_sig_figs(DIGITS),
        (pl.col("peak_memory_bytes") / BYTES_PER_MB).round_sig_figs(DIGITS).alias("mb"),
    )
    place = ("over", "platform", "workload")
    short = labels_of(points["platform"].unique(maintain_order=True)).names
    groups: list[Json] = []
    for (over, platform, workload), group in shown.group_by(place, maintain_order=True):
        timed = group.filter(pl.col("end").is_null()).sort("value")
        ends = group.filter(pl.col("end").is_not_null())
        groups.append(
            {
                "title": f"{titled(short[str(platform)], group['origin'])}, {workload}",
                "over": over,
                "axis": _AXIS_TITLES[str(over)],
                "item": group["item"][0],
                "rows": [[_at(evidence, model), *figures] for model, *figures in timed.select(
                    "model", "value", "ms", "items_per_s", "mb").iter_rows()],
                "ends": _ends_text(ends),
            }
        )  # fmt: skip
    return groups


def _at(evidence: Evidence, model: str) -> int | str:
    return evidence.shown.model_at.get(model, model)


def _ends_text(ends: pl.DataFrame) -> str:
    """The smallest value of each model and error: larger ones failed too, or were not needed."""
    first = ends.group_by("model", "end", maintain_order=True).agg(pl.col("value").min())
    alike = first.group_by("end", "value", maintain_order=True).agg("model")
    names = (
        (end, value, ", ".join(models) if len(models) <= _MANY else count_of(len(models), "model"))
        for end, value, models in alike.iter_rows()
    )
    return "; ".join(f"{end.replace('_', ' ')} at {value}: {some}" for end, value, some in names)


def sustained_series(evidence: Evidence) -> list[Json]:
    """For each platform and workload: title, item and points.

    A point is [model, repeat, second, rate], the model as in `curve_groups`; a line ends with its
    last window.
    """
    rows = drawn_runs(evidence)
    if rows is None:
        return []
    short = labels_of(rows["platform_key"].unique(maintain_order=True)).names
    points: dict[tuple[str, str], list[list[object]]] = {}
    facts: dict[tuple[str, str], tuple[str, str]] = {}
    for row in rows.iter_rows(named=True):
        samples = np.asarray(row["samples_ns"] or [], dtype=float)
        samples = samples[samples > 0]
        if samples.size == 0 or row["items"] is None:
            continue
        ends_s = np.cumsum(samples) / NS_PER_S
        starts, rates = windows(ends_s)
        steps = [*zip(starts, rates, strict=True), (ends_s[-1], rates[-1])]
        key = row["platform_key"], row["workload"]
        facts[key] = row["item"], titled(short[row["platform_key"]], [row["origin"]])
        run = _at(evidence, row["model"]), row["repeat"] + 1
        points.setdefault(key, []).extend(
            [*run, round(float(at), 3), float(f"{rate * row['items']:.{DIGITS}g}")]
            for at, rate in steps
        )
    return [
        {"title": f"{title}, {workload}", "item": item, "points": points[platform, workload]}
        for (platform, workload), (item, title) in facts.items()
    ]

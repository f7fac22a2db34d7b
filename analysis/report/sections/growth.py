"""The sections on growth with batch, length and size, and on sustained throughput."""

import numpy as np
import polars as pl

from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.html_table import Json, html_table
from fleetrank.analysis.report.origin_words import short_names, titled
from fleetrank.analysis.report.page_tables import PageTables
from fleetrank.analysis.report.sections.sections import Section, listed
from fleetrank.analysis.statistics.scaling.curves import KNEE_GAIN
from fleetrank.analysis.statistics.scaling.sustained import sustained_as_table, windows
from fleetrank.foundation.units import NS_PER_MS, NS_PER_S
from fleetrank.foundation.wording import count_of

_BYTES_PER_MB = 1e6
_DIGITS = 4
_MANY = 4
"""More models than that are counted: a caption has about three lines."""
_AXIS_TITLES = {
    "batch": "samples in one inference", "length": "tokens", "input_size": "pixels, height = width"
}  # fmt: skip


def growth_sections(evidence: Evidence, tables: PageTables) -> list[Section]:
    """The section on curves and the one on sustained runs, each if it has data."""
    found = []
    if (points := _drawn_curves(evidence, tables)) is not None:
        found.append(
            Section(
                id="scaling",
                short="Scaling",
                title="How do latency, rate and memory grow?",
                lead=(
                    "A line is a model on one platform; its points are measured, and nothing is "
                    "drawn beyond them. The table has the slope, and the knee: the smallest batch "
                    f"whose double has less than {KNEE_GAIN:g} times its rate.",
                ),
                charts="scaling",
                overall="Curves of all platforms are drawn; a filter hides models only.",
                tables=listed(evidence, tables, "scaling", is_statistic=True),
                drawn=points,
            )
        )
    if (rows := _drawn_runs(evidence)) is not None:
        table = sustained_as_table(rows)
        found.append(
            Section(
                id="sustained",
                short="Sustained",
                title="What does a device sustain?",
                lead=(
                    "Inferences followed one another for a given time in one process. A step is "
                    "the rate in a window of whole runs; a falling line is a device that became "
                    "slower. Tools that print no samples have a row and no line.",
                ),
                charts="sustained" if sustained_series(evidence) else "",
                overall="A line is about one process; a filter hides models only.",
                tables=(html_table("sustained", table, evidence.shown, is_statistic=True),),
                drawn=rows,
            )
        )
    return found


def _drawn_curves(evidence: Evidence, tables: PageTables) -> pl.DataFrame | None:
    """The points that the charts show: the curves of the table, which names no device."""
    if tables.curves is None:
        return None
    names = evidence.shown.on_page(tables.curves.select("model").unique())["model"]
    return _unless_empty(tables.curves.filter(pl.col("model").is_in(names.implode())))


def _drawn_runs(evidence: Evidence) -> pl.DataFrame | None:
    """The sustained runs that chart and table show."""
    if evidence.sustained is None:
        return None
    return _unless_empty(evidence.shown.on_page(evidence.sustained))


def _unless_empty(rows: pl.DataFrame) -> pl.DataFrame | None:
    return None if rows.is_empty() else rows


def curve_groups(evidence: Evidence, tables: PageTables) -> list[Json]:
    """For each axis, platform and workload: titles, rows and the values that failed.

    A row is [model, value, ms, items per second, peak MB]; a figure that is not known is null. A
    model is its number on the page, or its name if it was not measured in the page's workload.
    """
    points = _drawn_curves(evidence, tables)
    if points is None:
        return []
    shown = points.with_columns(
        (pl.col("latency_ns") / NS_PER_MS).round_sig_figs(_DIGITS).alias("ms"),
        pl.col("items_per_s").round_sig_figs(_DIGITS),
        (pl.col("peak_memory_bytes") / _BYTES_PER_MB).round_sig_figs(_DIGITS).alias("mb"),
    )
    place = ("over", "platform", "workload")
    short = short_names(points["platform"].unique().to_list())
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
    return "; ".join(
        f"{end.replace('_', ' ')} at {value}: {_names(models)}"
        for end, value, models in alike.iter_rows()
    )


def _names(models: list[str]) -> str:
    return ", ".join(models) if len(models) <= _MANY else count_of(len(models), "model")


def sustained_series(evidence: Evidence) -> list[Json]:
    """For each platform and workload: title, item and points.

    A point is [model, repeat, second, rate], the model as in `curve_groups`; a line ends with its
    last window.
    """
    rows = _drawn_runs(evidence)
    if rows is None:
        return []
    short = short_names(rows["platform_key"].unique().to_list())
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
            [*run, round(float(at), 3), _rounded(rate * row["items"])] for at, rate in steps
        )
    return [
        {"title": f"{title}, {workload}", "item": item, "points": points[platform, workload]}
        for (platform, workload), (item, title) in facts.items()
    ]


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")

"""Peak memory of every model on every platform, run and load apart, with the metric's name."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analysis.figures.labels import chosen_platforms
from analysis.figures.theme import (
    Point,
    Spec,
    family_colour,
    family_shape,
    finish,
    inline,
    row_scale,
    rows_height,
)

_BYTES_PER_MB = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPanel:
    """One platform; `metric` says what its figures count."""

    platform_key: str
    label: str
    metric: str
    models: tuple[str, ...]
    cells: tuple[Point, ...]
    max_mb: float


def memory_points(cells: pl.DataFrame, *, max_panels: int) -> list[MemoryPanel]:
    """Panels of the platforms that report memory, rows ordered by the median peak over them."""
    known = cells.filter(pl.col("peak_memory_bytes") > 0)
    labels = chosen_platforms(known, max_panels)
    shown = known.filter(pl.col("platform_key").is_in(list(labels)))
    models = _by_memory(shown)
    peaks = (shown["peak_memory_bytes"].max(), shown["load_peak_memory_bytes"].max())
    largest = max((float(str(peak)) for peak in peaks if peak is not None), default=0.0)
    return [
        _panel(key, labels[key], models, shown.filter(pl.col("platform_key") == key), largest)
        for key in labels
    ]


def _by_memory(cells: pl.DataFrame) -> list[str]:
    ordered = (
        cells.group_by("model")
        .agg(pl.col("peak_memory_bytes").median())
        .sort("peak_memory_bytes", "model")
    )
    return [str(name) for name in ordered["model"]]


def _panel(
    key: str, label: str, models: Sequence[str], rows: pl.DataFrame, largest_bytes: float
) -> MemoryPanel:
    metrics = rows["memory_metric"].drop_nulls().unique().sort()
    return MemoryPanel(
        platform_key=key,
        label=label,
        metric=" | ".join(metrics) or "metric not recorded",
        models=tuple(models),
        cells=tuple(
            {
                "model": row["model"],
                "family": row["family"],
                "run_mb": _mb(row["peak_memory_bytes"]),
                "load_mb": _mb(row["load_peak_memory_bytes"]),
                "metric": row["memory_metric"],
            }
            for row in rows.iter_rows(named=True)
        ),
        max_mb=round(largest_bytes / _BYTES_PER_MB * 1.05, 1),
    )


def _mb(value: object) -> float | None:
    return None if value is None else float(f"{float(str(value)) / _BYTES_PER_MB:.4g}")


def draw_memory(panel: MemoryPanel) -> Spec:
    """A dot for the run's peak, a small hollow one for the load's, joined by a thin line."""
    import altair as alt

    rows = alt.Y("model:N", scale=row_scale(panel.models), title=None)
    scale = alt.Scale(domain=[0, panel.max_mb], nice=False)
    axis = alt.Axis(tickCount=4, labelOverlap=True)
    tooltip = [
        alt.Tooltip("model:N"),
        alt.Tooltip("run_mb:Q", title="run peak MB"),
        alt.Tooltip("load_mb:Q", title="load peak MB"),
        alt.Tooltip("metric:N"),
    ]
    base = alt.Chart(inline(panel.cells)).encode(y=rows, color=family_colour(), tooltip=tooltip)
    run = alt.X("run_mb:Q", scale=scale, axis=axis, title="MB over the baseline")
    span = base.mark_rule(opacity=0.4).encode(x=run, x2="load_mb:Q")
    loads = base.mark_point(size=30, strokeWidth=1.2).encode(x=alt.X("load_mb:Q", scale=scale))
    runs = base.mark_point(filled=True, size=52, opacity=1).encode(x=run, shape=family_shape())
    return finish(alt.layer(span, loads, runs), height=rows_height(len(panel.models)))

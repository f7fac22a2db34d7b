"""Latency of every model on every platform: process medians, their median and its interval."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analysis.figures.labels import chosen_platforms, models_by_latency
from analysis.figures.theme import (
    Point,
    Spec,
    family_colour,
    family_shape,
    finish,
    inline,
    log_ticks,
    row_scale,
    rows_height,
)

NS_PER_MS = 1e6
_MAX_PROCESSES = 12
"""Process medians drawn per cell; of more, evenly spaced ranks are drawn, both ends included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPanel:
    """One platform; `cells` holds a point per model, `processes` one per fresh process."""

    platform_key: str
    label: str
    models: tuple[str, ...]
    cells: tuple[Point, ...]
    processes: tuple[Point, ...]
    domain_ms: tuple[float, float]


def process_medians(attempts: pl.LazyFrame) -> pl.DataFrame:
    """At most `_MAX_PROCESSES` process medians per cell from `load.valid_attempts`, as a list."""
    ranks = pl.col("latency_p50_ns").drop_nulls().sort()
    n = ranks.len()
    step = pl.int_range(0, pl.min_horizontal(n, _MAX_PROCESSES))
    spread = (step * (n - 1) / (pl.min_horizontal(n, _MAX_PROCESSES) - 1)).round()
    picked = ranks.gather(pl.when(n <= _MAX_PROCESSES).then(step).otherwise(spread).cast(pl.Int64))
    return attempts.group_by("model", "platform_key").agg(picked.alias("medians_ns")).collect()


def latency_points(
    cells: pl.DataFrame, processes: pl.DataFrame, *, max_panels: int
) -> list[LatencyPanel]:
    """Panels for at most `max_panels` platforms, all with the same rows and the same scale."""
    labels = chosen_platforms(cells, max_panels)
    shown = cells.filter(pl.col("platform_key").is_in(list(labels)) & (pl.col("latency_ns") > 0))
    models = models_by_latency(shown)
    if shown.is_empty():
        return []
    rows = shown.join(processes, on=["model", "platform_key"], how="left")
    domain = _domain(shown, processes)
    measured = set(shown["platform_key"])
    return [
        _panel(key, label, models, rows.filter(pl.col("platform_key") == key), domain)
        for key, label in labels.items()
        if key in measured
    ]


def _panel(
    key: str,
    label: str,
    models: Sequence[str],
    rows: pl.DataFrame,
    domain_ms: tuple[float, float],
) -> LatencyPanel:
    named = list(rows.iter_rows(named=True))
    return LatencyPanel(
        platform_key=key,
        label=label,
        models=tuple(models),
        cells=tuple(_cell(row) for row in named),
        processes=tuple(
            {"model": row["model"], "family": row["family"], "ms": _sig(value / NS_PER_MS)}
            for row in named
            for value in row["medians_ns"] or ()
        ),
        domain_ms=domain_ms,
    )


def _cell(row: Mapping[str, object]) -> Point:
    low, high = _ms(row["latency_low_ns"]), _ms(row["latency_high_ns"])
    interval = f"{low:g} to {high:g} ms" if low and high else "none below 5 repeats"
    return {
        "model": row["model"],
        "family": row["family"],
        "ms": _ms(row["latency_ns"]),
        "low_ms": low,
        "high_ms": high,
        "p95_ms": _ms(row["latency_p95_ns"]),
        "p99_ms": _ms(row["latency_p99_ns"]),
        "n": row["n_repeats"],
        "interval": interval,
    }


def _domain(cells: pl.DataFrame, processes: pl.DataFrame) -> tuple[float, float]:
    """Common limits of all panels, a little wider than the data."""
    on = cells.select("model", "platform_key").join(processes, on=["model", "platform_key"])
    values = pl.concat([on["medians_ns"].explode().drop_nulls(), cells["latency_ns"]])
    low, high = float(str(values.min())), float(str(values.max()))
    return _sig(low / NS_PER_MS * 0.85), _sig(high / NS_PER_MS * 1.18)


def _ms(value: object) -> float | None:
    return None if value is None else _sig(float(str(value)) / NS_PER_MS)


def _sig(value: float) -> float:
    """Four digits: more than any process median is good for."""
    return float(f"{value:.4g}")


def draw_latency(panel: LatencyPanel) -> Spec:
    """A dot plot on a log scale; small marks are single processes, the bar is the interval."""
    import altair as alt

    rows = alt.Y("model:N", scale=row_scale(panel.models), title=None)
    scale = alt.Scale(type="log", domain=list(panel.domain_ms), nice=False)
    axis = alt.Axis(values=log_ticks(*panel.domain_ms), format="~g", labelOverlap=True)
    base = alt.Chart(inline(panel.cells))
    single = alt.Chart(inline(panel.processes))
    ticks = single.mark_tick(thickness=1.5, height=9, opacity=0.45).encode(
        x=alt.X("ms:Q", scale=scale, axis=axis, title="ms per inference, log scale"),
        y=rows,
        color=family_colour(),
    )
    bars = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("low_ms:Q", scale=scale), x2="high_ms:Q", y=rows, color=family_colour()
    )
    dots = base.mark_point(filled=True, size=52, opacity=1).encode(
        x=alt.X("ms:Q", scale=scale),
        y=rows,
        color=family_colour(),
        shape=family_shape(),
        tooltip=[
            alt.Tooltip("model:N"),
            alt.Tooltip("ms:Q", title="median ms"),
            alt.Tooltip("interval:N"),
            alt.Tooltip("p95_ms:Q", title="p95 ms"),
            alt.Tooltip("p99_ms:Q", title="p99 ms"),
            alt.Tooltip("n:Q", title="repeats"),
        ],
    )
    return finish(alt.layer(bars, ticks, dots), height=rows_height(len(panel.models)))

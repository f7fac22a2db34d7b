"""Accuracy against latency on a target, and which of its frontier a source had foretold."""

import itertools
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl

from analysis.figures.labels import chosen_platforms
from analysis.figures.theme import Point, Spec, finish, inline, log_ticks
from analysis.pareto import FrontierOverlap, Mask, frontier, overlap

NS_PER_MS = 1e6
_MIN_MODELS = 5
"""As for a rank correlation: fewer models make a frontier of nearly all of them."""
_HEIGHT = 320
_MAX_PLATFORMS = 24
"""Of a fleet, the platforms among which pairs are looked for."""


class Fate(StrEnum):
    """What became of a model on the way from the source's frontier to the target's."""

    HIT = "hit"
    MISS = "miss"
    FALSE = "false alarm"
    NEITHER = "on neither"


_COLOURS = {
    Fate.HIT: "#009E73", Fate.MISS: "#D55E00", Fate.FALSE: "#CC79A7", Fate.NEITHER: "#8a919c",
}  # fmt: skip
_SHAPES = {
    Fate.HIT: "circle", Fate.MISS: "diamond", Fate.FALSE: "cross", Fate.NEITHER: "circle",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPanel:
    """One pair of platforms over the models both have measured with a known accuracy."""

    source_label: str
    target_label: str
    n: int
    overlap: FrontierOverlap
    points: tuple[Point, ...]


def frontier_points(cells: pl.DataFrame, *, max_panels: int) -> list[FrontierPanel]:
    """Pairs in the order that a reader would ask for them.

    The first platform of `platform_labels` is the reference; when it stands for no more than one
    device, other devices come before other settings of the reference's own.
    """
    labels = chosen_platforms(cells, _MAX_PLATFORMS)
    known = cells.filter(pl.col("accuracy_top1").is_not_null() & (pl.col("latency_ns") > 0))
    device = dict(known.select("platform_key", "device").iter_rows())
    pairs = sorted(
        (pair for pair in itertools.combinations([key for key in labels if key in device], 2)),
        key=lambda pair: device[pair[0]] == device[pair[1]],
    )
    panels = (_panel(known, source, target, labels) for source, target in pairs)
    return list(itertools.islice((panel for panel in panels if panel is not None), max_panels))


def _panel(
    cells: pl.DataFrame, source: str, target: str, labels: dict[str, str]
) -> FrontierPanel | None:
    columns = ("model", "family", "accuracy_top1", "latency_ns")
    sides = [
        cells.filter(pl.col("platform_key") == key).select(columns).unique("model", keep="first")
        for key in (source, target)
    ]
    both = sides[1].join(sides[0].select("model", "latency_ns"), on="model", suffix="_source")
    both = both.sort("latency_ns")
    masks = _frontier(both, "latency_ns_source"), _frontier(both, "latency_ns")
    found = overlap(*masks) if both.height >= _MIN_MODELS else None
    if found is None:
        return None
    return FrontierPanel(
        source_label=labels[source],
        target_label=labels[target],
        n=both.height,
        overlap=found,
        points=tuple(
            {
                "model": row["model"],
                "family": row["family"],
                "accuracy": round(row["accuracy_top1"], 2),
                "ms": float(f"{row['latency_ns'] / NS_PER_MS:.4g}"),
                "source_ms": float(f"{row['latency_ns_source'] / NS_PER_MS:.4g}"),
                "fate": _fate(bool(in_source), bool(in_target)).value,
                "is_on_target": bool(in_target),
            }
            for row, in_source, in_target in zip(both.iter_rows(named=True), *masks, strict=True)
        ),
    )


def _frontier(cells: pl.DataFrame, latency: str) -> Mask:
    return frontier(
        np.column_stack([cells[latency].to_numpy(), -cells["accuracy_top1"].to_numpy()])
    )


def _fate(in_source: bool, in_target: bool) -> Fate:
    if in_source and in_target:
        return Fate.HIT
    if in_target:
        return Fate.MISS
    return Fate.FALSE if in_source else Fate.NEITHER


def draw_frontier(panel: FrontierPanel) -> Spec:
    """The target's own frontier as a step line; every model marked by its fate, frontiers named."""
    import altair as alt

    domain = _domain(panel)
    fates = [fate.value for fate in Fate]
    legend = alt.Legend(orient="bottom", title=None, columns=4, symbolSize=60, labelFontSize=11)
    colour = alt.Color(
        "fate:N", scale=alt.Scale(domain=fates, range=list(_COLOURS.values())), legend=legend
    )
    shape = alt.Shape(
        "fate:N", scale=alt.Scale(domain=fates, range=list(_SHAPES.values())), legend=legend
    )
    base = alt.Chart(inline(panel.points)).encode(
        x=alt.X(
            "ms:Q",
            scale=alt.Scale(type="log", nice=False, domain=list(domain)),
            axis=alt.Axis(values=log_ticks(*domain), format="~g", labelOverlap=True),
            title="ms per inference on the target, log scale",
        ),
        y=alt.Y("accuracy:Q", scale=alt.Scale(zero=False, padding=14), title="top-1 accuracy, %"),
        tooltip=[
            alt.Tooltip("model:N"),
            alt.Tooltip("fate:N"),
            alt.Tooltip("ms:Q", title="ms on target"),
            alt.Tooltip("source_ms:Q", title="ms on source"),
            alt.Tooltip("accuracy:Q", title="top-1 %"),
        ],
    )
    line = base.transform_filter("datum.is_on_target").mark_line(
        interpolate="step-after", strokeWidth=1.5, opacity=0.45, color="currentColor"
    )
    dots = base.mark_point(filled=True, size=75, opacity=1).encode(color=colour, shape=shape)
    named = base.transform_filter("datum.fate !== 'on neither'")
    names = named.mark_text(align="left", dx=8, dy=9, limit=110).encode(text="model:N")
    return finish(alt.layer(line, dots, names), height=_HEIGHT)


def _domain(panel: FrontierPanel) -> tuple[float, float]:
    """Leaves room for the names to the right of the last points."""
    times = [float(str(point["ms"])) for point in panel.points]
    low, high = min(times), max(times)
    return low * 0.85, high * (high / low) ** 0.25 * 1.1

"""Rank by FLOPs against measured rank: which models FLOPs misjudge, on each platform."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from analysis.figures.labels import chosen_platforms
from analysis.figures.theme import Point, Spec, family_colour, family_shape, finish, inline

MIN_SHIFT = 2
"""Positions from which a disagreement counts, as in the study."""
_HEIGHT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPanel:
    """One platform; ranks run from 1 (cheapest) to `n`."""

    platform_key: str
    label: str
    n: int
    n_shifted: int
    points: tuple[Point, ...]


def flops_rank_points(cells: pl.DataFrame, *, max_panels: int) -> list[RankPanel]:
    """Panels of platforms with at least two models whose FLOPs and latency are both known."""
    known = cells.filter((pl.col("flops") > 0) & (pl.col("latency_ns") > 0)).with_columns(
        pl.col("flops").rank().over("platform_key").alias("flops_rank"),
        pl.col("latency_ns").rank().over("platform_key").alias("latency_rank"),
        pl.len().over("platform_key").alias("n"),
    )
    ranked = known.filter(pl.col("n") > 1)
    return [
        _panel(key, label, ranked.filter(pl.col("platform_key") == key))
        for key, label in chosen_platforms(ranked, max_panels).items()
    ]


def _panel(key: str, label: str, rows: pl.DataFrame) -> RankPanel:
    points = tuple(_point(row) for row in rows.iter_rows(named=True))
    return RankPanel(
        platform_key=key,
        label=label,
        n=rows.height,
        n_shifted=sum(bool(point["is_shifted"]) for point in points),
        points=points,
    )


def _point(row: Mapping[str, object]) -> Point:
    flops_rank, latency_rank = float(str(row["flops_rank"])), float(str(row["latency_rank"]))
    shift = latency_rank - flops_rank
    return {
        "model": row["model"],
        "family": row["family"],
        "flops_rank": flops_rank,
        "latency_rank": latency_rank,
        "is_shifted": abs(shift) >= MIN_SHIFT,
        "verdict": _verdict(shift),
    }


def _verdict(shift: float) -> str:
    if shift == 0:
        return "as FLOPs say"
    return f"{abs(shift):g} places {'slower' if shift > 0 else 'faster'} than FLOPs say"


def draw_flops_rank(panel: RankPanel) -> Spec:
    """Points off the diagonal band are named; above it measured slower than FLOPs say."""
    import altair as alt

    scale = alt.Scale(domain=[0.3, panel.n + 0.7], nice=False)
    axis = alt.Axis(tickCount=min(panel.n, 7), tickMinStep=1, format="d")
    ends: list[Point] = [
        {"x": end, "low": end - MIN_SHIFT + 0.5, "high": end + MIN_SHIFT - 0.5}
        for end in (0.3, panel.n + 0.7)
    ]
    band = (
        alt.Chart(inline(ends))
        .mark_area(opacity=0.08, color="currentColor", clip=True)
        .encode(x=alt.X("x:Q", scale=scale), y=alt.Y("low:Q", scale=scale), y2="high:Q")
    )
    base = alt.Chart(inline(panel.points)).encode(
        x=alt.X("flops_rank:Q", scale=scale, axis=axis, title="rank by FLOPs (1 = fewest)"),
        y=alt.Y("latency_rank:Q", scale=scale, axis=axis, title="measured rank (1 = fastest)"),
        tooltip=["model:N", "flops_rank:Q", "latency_rank:Q", "verdict:N"],
    )
    dots = base.mark_point(filled=True, size=60, opacity=1).encode(
        color=family_colour(), shape=family_shape()
    )
    # Names at the right edge would be cut: there they stand to the left of their points.
    left = base.transform_filter(f"datum.is_shifted && datum.flops_rank > {panel.n * 0.6}")
    right = base.transform_filter(f"datum.is_shifted && datum.flops_rank <= {panel.n * 0.6}")
    names = (
        left.mark_text(align="right", dx=-8, baseline="middle").encode(text="model:N"),
        right.mark_text(align="left", dx=8, baseline="middle").encode(text="model:N"),
    )
    return finish(alt.layer(band, dots, *names), height=_HEIGHT)

"""How far ranks carry from each platform to each other, as a matrix."""

from collections.abc import Mapping, Sequence

import polars as pl

from analysis.figures.theme import Point, Spec, finish, inline

_COLOURS = ("#B5530D", "#F3DFC8", "#A9CDE6", "#0B5394")
_STOPS = (0.0, 0.5, 0.8, 1.0)
"""Orange to blue is told apart by every reader; light where neither trust nor distrust is due."""
_CELL = 34


def heat_points(pairs: pl.DataFrame, names: Mapping[str, str]) -> list[Point]:
    """Both halves of the matrix from the rows of level `pair` of one measure of `transfer`."""
    return [
        _point(row, names[source], names[target])
        for row in pairs.iter_rows(named=True)
        for source, target in (
            (row["source"], row["target"]),
            (row["target"], row["source"]),
        )
        if source in names and target in names
    ]


def _point(row: Mapping[str, object], source: str, target: str) -> Point:
    rho, low, high = _round(row["rho"]), _round(row["low"]), _round(row["high"])
    null, p95 = _round(row["null_mean"]), _round(row["null_p95"])
    interval = "none below 9 models" if low is None else f"{low:.2f} to {high:.2f}"
    return {
        "source": source,
        "target": target,
        "rho": rho,
        "shown": "?" if rho is None else f"{rho:.2f}",
        "interval": str(row["reason"] or "undefined") if rho is None else interval,
        "null": "none" if null is None else f"mean {null:.2f}, 95th percentile {p95:.2f}",
        "models": row["n_models"],
    }


def _round(value: object) -> float | None:
    return None if value is None else round(float(str(value)), 4)


def draw_heat_map(points: Sequence[Point], order: Sequence[str]) -> Spec:
    """Draws `source`, `target`, `rho`, `shown` and the texts of the tooltip.

    Args:
        points: one per ordered pair; `rho` null where it is undefined, `details` says more.
        order: labels of both axes.
    """
    import altair as alt

    sides = alt.Scale(domain=list(order))
    colour = alt.Scale(domain=list(_STOPS), range=list(_COLOURS), clamp=True, interpolate="rgb")
    base = alt.Chart(inline(points)).encode(
        x=alt.X(
            "target:N",
            scale=sides,
            title="to",
            axis=alt.Axis(labelAngle=-40, orient="bottom", domain=False, ticks=False, grid=False),
        ),
        y=alt.Y("source:N", scale=sides, title="from", axis=alt.Axis(grid=False)),
        tooltip=[
            alt.Tooltip("source:N", title="from"),
            alt.Tooltip("target:N", title="to"),
            alt.Tooltip("shown:N", title="rho"),
            alt.Tooltip("interval:N"),
            alt.Tooltip("null:N", title="shuffled latency"),
            alt.Tooltip("models:Q"),
        ],
    )
    cells = base.mark_rect(cornerRadius=3, stroke=None).encode(
        color=alt.Color("rho:Q", scale=colour, legend=None)
    )
    is_dark = "datum.rho > 0.9 || datum.rho < 0.12"
    figures = base.mark_text(fontSize=11).encode(
        text="shown:N", color=alt.condition(is_dark, alt.value("#ffffff"), alt.value("#1b1b1b"))
    )
    return finish(alt.layer(cells, figures), height=_CELL * len(order) + 80)

"""How far ranks carry from each platform to each other, as a matrix."""

from collections.abc import Sequence

from analysis.figures.theme import Point, Spec, finish, inline

_COLOURS = ("#B5530D", "#F3DFC8", "#A9CDE6", "#0B5394")
_STOPS = (0.0, 0.5, 0.8, 1.0)
"""Orange to blue is told apart by every reader; light where neither trust nor distrust is due."""
_CELL = 34


def draw_heat_map(points: Sequence[Point], order: Sequence[str]) -> Spec:
    """Draws `source`, `target`, `rho`, `shown` and the texts of the tooltip.

    Args:
        points: one per ordered pair; `rho` null where it is undefined, `details` says more.
        order: labels of both axes.
    """
    import altair as alt

    sides = alt.Scale(domain=list(order))
    colour = alt.Scale(domain=list(_STOPS), range=list(_COLOURS), clamp=True)
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
            alt.Tooltip("null:N", title="without latency"),
            alt.Tooltip("models:N"),
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

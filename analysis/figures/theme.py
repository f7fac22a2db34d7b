"""One look for all charts: colours a colour-blind reader can tell, text in the page's own colour.

`currentColor` hands every line and letter of a chart to the page's style sheet: dark mode and
print need no second drawing.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import altair as alt

Spec = dict[str, object]
"""A Vega-Lite specification with its data."""
Point = dict[str, object]
"""One datum of a chart; JSON values only."""

FAMILY_COLOURS: Mapping[str, str] = {
    "standard_cnn": "#0072B2",
    "mobile_cnn": "#E69F00",
    "efficient_cnn": "#009E73",
    "transformer": "#D55E00",
    "hybrid": "#CC79A7",
}
"""Source: Okabe and Ito, Color Universal Design (2008); legible on white and on near-black."""
FAMILY_SHAPES: Mapping[str, str] = {
    "standard_cnn": "square",
    "mobile_cnn": "circle",
    "efficient_cnn": "diamond",
    "transformer": "triangle-up",
    "hybrid": "triangle-down",
}
"""Colour is never the only mark of a family."""
_TEXT = "currentColor"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
ROW_HEIGHT = 20
"""Pixels per model: room for an 11 px label and a gap."""
_AXIS_HEIGHT = 40
_MIN_TICKS = 3


def family_colour() -> "alt.Color":
    """Colour by `family`; the page explains it once, above the charts."""
    import altair as alt

    scale = alt.Scale(domain=list(FAMILY_COLOURS), range=list(FAMILY_COLOURS.values()))
    return alt.Color("family:N", scale=scale, legend=None)


def family_shape() -> "alt.Shape":
    """Shape by `family`."""
    import altair as alt

    scale = alt.Scale(domain=list(FAMILY_SHAPES), range=list(FAMILY_SHAPES.values()))
    return alt.Shape("family:N", scale=scale, legend=None)


def rows_height(n_rows: int) -> int:
    """Pixels of a chart of rows, axis and its title included."""
    return ROW_HEIGHT * max(n_rows, 1) + _AXIS_HEIGHT


def log_ticks(low: float, high: float) -> list[float]:
    """Round values between two limits above 0: powers of ten, or 1-2-5 when those are few."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5)):
        ticks = [
            value
            for power in exponents
            for step in steps
            if low <= (value := step * 10.0**power) <= high
        ]
        if len(ticks) >= _MIN_TICKS:
            break
    return ticks


def row_scale(names: Sequence[str]) -> "alt.Scale":
    """A scale with the rows in exactly this order; names are data, never expressions."""
    import altair as alt

    return alt.Scale(domain=list(names))


def inline(points: Sequence[Point]) -> "alt.InlineData":
    """Data that travels inside the specification."""
    import altair as alt

    return alt.InlineData(values=list(points))


def finish(chart: "alt.Chart | alt.LayerChart | alt.FacetChart", *, height: int) -> Spec:
    """Gives a chart its size and the common look; width follows the page."""
    styled = chart.properties(width="container", height=height, background="transparent")
    # Encodings are written here and tested in a browser: validating each costs more than drawing.
    spec: Spec = styled.to_dict(validate=False)
    spec["config"] = _CONFIG
    # The data may have been measured under any name, but no spec may load anything.
    spec["autosize"] = {"type": "fit", "contains": "padding"}
    return spec


_AXIS: Mapping[str, object] = {
    "labelColor": _TEXT,
    "titleColor": _TEXT,
    "titleFontWeight": "normal",
    "titleOpacity": 0.75,
    "labelFontSize": 11,
    "titleFontSize": 11,
    "gridColor": _TEXT,
    "gridOpacity": 0.1,
    "domainColor": _TEXT,
    "domainOpacity": 0.25,
    "tickColor": _TEXT,
    "tickOpacity": 0.25,
    "labelLimit": 150,
}
_CONFIG: Mapping[str, object] = {
    "font": _FONT,
    "view": {"stroke": None},
    "axis": _AXIS,
    "axisY": {"domain": False, "ticks": False, "labelPadding": 6},
    "text": {"color": _TEXT, "fontSize": 10.5},
    "legend": {"labelColor": _TEXT, "titleColor": _TEXT, "titleFontWeight": "normal"},
}

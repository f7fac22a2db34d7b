"""One style for all charts: colours and shapes that a colour-blind reader can distinguish."""

from collections.abc import Mapping

NO_FAMILY = "not stated"
"""The family of a model without one, such as a published model."""
FAMILY_COLOURS: Mapping[str, str] = {
    "standard_cnn": "#0072B2",
    "mobile_cnn": "#E69F00",
    "efficient_cnn": "#009E73",
    "transformer": "#D55E00",
    "hybrid": "#CC79A7",
    NO_FAMILY: "#8a919c",
}
"""Source: Okabe and Ito, Color Universal Design (2008); legible on white and on near-black."""
FAMILY_SHAPES: Mapping[str, str] = {
    "standard_cnn": "square",
    "mobile_cnn": "circle",
    "efficient_cnn": "diamond",
    "transformer": "triangle-up",
    "hybrid": "triangle-down",
    NO_FAMILY: "cross",
}
"""Each family also has a shape, because colour alone is not readable for everyone."""

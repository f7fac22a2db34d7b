"""One style for all charts: colours and shapes that a colour-blind reader can distinguish."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

NO_FAMILY = "not stated"
"""The family of a model without one, such as a published model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyMark:
    """How a family is drawn; its shape is also readable without colour.

    Attributes:
        colour: as CSS has it.
        shape: a symbol of Vega, for charts.
        path: the same shape as an SVG path around 0, within 6 units, for legends.
    """

    colour: str
    shape: str
    path: str


FAMILY_MARKS: Mapping[str, FamilyMark] = MappingProxyType(
    {
        "standard_cnn": FamilyMark(colour="#0072B2", shape="square", path="M-4-4h8v8h-8z"),
        "mobile_cnn": FamilyMark(
            colour="#E69F00", shape="circle", path="M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"
        ),
        "efficient_cnn": FamilyMark(
            colour="#009E73", shape="diamond", path="M0-5.6L5.6 0L0 5.6L-5.6 0z"
        ),
        "transformer": FamilyMark(colour="#D55E00", shape="triangle-up", path="M0-5L5.5 4.5H-5.5z"),
        "hybrid": FamilyMark(colour="#CC79A7", shape="triangle-down", path="M0 5L5.5-4.5H-5.5z"),
        NO_FAMILY: FamilyMark(
            colour="#8a919c", shape="cross", path="M-5-2h3v-3h4v3h3v4h-3v3h-4v-3h-3z"
        ),
    }
)
"""Source of the colours: Okabe and Ito, Color Universal Design (2008); legible on white and on
near-black."""

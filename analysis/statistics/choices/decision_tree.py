"""The study's decision framework as data: advice per goal, and the figure that decides."""

from dataclasses import dataclass
from enum import StrEnum


class Goal(StrEnum):
    """The user's goal for the measurements. Source: the study's Figure 5."""

    EXPLORATION = "early exploration"
    PAPER = "paper comparison"
    DEPLOYMENT = "multi-platform deployment"
    PRODUCTION = "production"
    SEARCH = "architecture search"


class Figure(StrEnum):
    """The user's own figure that answers a branch."""

    FLOPS_RHO = "rho of FLOPs with latency"
    WITHIN_TIER_RHO = "rho of latency inside a tier"
    BETWEEN_TIERS_RHO = "rho of latency between tiers"
    CNN_RHO = "rho of latency, CNNs"
    ATTENTION_ERROR = "leave-one-out error, transformers and hybrids"
    TAIL = "p99 over p50"
    FRONTIER = "precision of the frontier"


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One leaf of the tree.

    Attributes:
        limit: the figure must reach it (a rho) or stay below it (an error); `None` is without a
            limit.
        is_error: smaller is better.
        if_met, otherwise: the advice.
    """

    goal: Goal
    figure: Figure
    limit: float | None = None
    is_error: bool = False
    if_met: str
    otherwise: str


ROUGH_RHO = 0.7
"""rho^2 = 0.5: FLOPs then explain half of the rank variance."""
STRONG_RHO = 0.9
"""Source: Lu et al. 2021 (OneProxy), who call 0.9 to 1 strongly monotonic."""
ERROR_LIMIT = 0.10
"""Between the study's CNNs (5.2 to 7.8 %) and its hybrids and transformers (15.6 and 23.4 %)."""
CNN_FAMILIES = ("standard_cnn", "mobile_cnn", "efficient_cnn")
ATTENTION_FAMILIES = ("transformer", "hybrid")
TREE = (
    Branch(
        goal=Goal.EXPLORATION, figure=Figure.FLOPS_RHO, limit=ROUGH_RHO,
        if_met="FLOPs are enough for rough filtering", otherwise="measure latency even to filter",
    ),
    Branch(
        goal=Goal.PAPER, figure=Figure.WITHIN_TIER_RHO, limit=STRONG_RHO,
        if_met="one named reference device represents this class",
        otherwise="name the device: one device does not represent its class",
    ),
    Branch(
        goal=Goal.PAPER, figure=Figure.BETWEEN_TIERS_RHO, limit=STRONG_RHO,
        if_met="a claim across these classes is supported; state it with its figure",
        otherwise="measure several devices of both classes, or state the caveat",
    ),
    Branch(
        goal=Goal.DEPLOYMENT, figure=Figure.CNN_RHO, limit=STRONG_RHO,
        if_met="rank CNNs on the reference device", otherwise="measure CNNs on the targets",
    ),
    Branch(
        goal=Goal.DEPLOYMENT, figure=Figure.ATTENTION_ERROR, limit=ERROR_LIMIT, is_error=True,
        if_met="predict them from the reference device", otherwise="measure them on the target",
    ),
    Branch(
        goal=Goal.PRODUCTION, figure=Figure.TAIL,
        if_met="", otherwise="always measure the real target, with p50, p95 and p99",
    ),
    Branch(
        goal=Goal.SEARCH, figure=Figure.FRONTIER,
        if_met="", otherwise="search on FLOPs or a proxy, choose on the target",
    ),
)  # fmt: skip


def advice(branch: Branch, value: float | None, low: float | None, high: float | None) -> str:
    """The advice for a figure and its interval; it is undecided if the limit is inside."""
    if branch.limit is None or value is None:
        return branch.otherwise
    is_met = value <= branch.limit if branch.is_error else value >= branch.limit
    said = branch.if_met if is_met else branch.otherwise
    if low is None or high is None:
        return f"{said} (without an interval: weak evidence)"
    is_open = low < branch.limit < high
    return f"{said} (undecided: {branch.limit:g} lies inside the interval)" if is_open else said

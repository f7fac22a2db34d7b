"""Pairs with a direction, for tables of predictions."""

from collections.abc import Sequence

from fleetrank.analysis.panel.directions import Group, grouped
from fleetrank.analysis.panel.pair_groups import between_devices
from fleetrank.analysis.panel.pairs import Pair
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.statistics.transfer.transfer_table import (
    chosen_platforms,
    nothing_to_compare,
)
from fleetrank.analysis.stored.selection import Selection

TIER_NOTE = (
    "Tier to tier: platforms of different devices at equal batch; mean inside a pair of device "
    "models (a cluster) first, then over clusters."
)


def directed_pairs(panel: Panel, selection: Selection) -> list[Pair]:
    """Every ordered pair from a chosen source to another platform that is a chosen target.

    Raises:
        NoDataError: fewer than two platforms fit.
    """
    sources, targets = chosen_platforms(panel, selection)
    if pairs := [(i, j) for i in sources for j in targets if i != j]:
        return pairs
    raise nothing_to_compare(panel)


def tier_groups(panel: Panel, pairs: Sequence[Pair]) -> tuple[list[Pair], list[Group]]:
    """The pairs of different devices at equal batch, and their groups by tiers."""
    between = between_devices(panel, pairs)
    tier, kind = panel.platforms["tier"].to_list(), panel.platforms["device_model"].to_list()
    names = [(str(tier[i]), str(tier[j])) for i, j in between]
    clusters = [f"{kind[i]} -> {kind[j]}" for i, j in between]
    return between, list(grouped(names, clusters))

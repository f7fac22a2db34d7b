"""How often orders are kept, by their gap, from one platform to another."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fleetrank.analysis.arrays.kept_order import MIN_MODELS, some_pairs
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.pairs.pair_fleet import PairFleet, fleet_of
from fleetrank.analysis.statistics.pairs.pairs import SURE
from fleetrank.analysis.tables.table import Table, explained

_EDGES = (1.0, 1.1, 1.25, 1.5, 2.0, 5.0, math.inf)
"""Of the gap at the source: below 1.1 repeats of one model differ as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GapRow:
    """Pairs of models that two platforms measured; `None` where a bin has none.

    Attributes:
        below_1_1 to from_5: share of kept orders by the ratio at the source.
        gap_95: the smallest ratio at the source from which on 95 % are kept.
    """

    source: str
    target: str
    n_models: int
    kept: float
    below_1_1: float | None
    from_1_1: float | None
    from_1_25: float | None
    from_1_5: float | None
    from_2: float | None
    from_5: float | None
    gap_95: float | None


def gaps_table(session: Session) -> Table:
    """From each chosen source, without a choice from here, to each other platform."""
    fleet, chosen = fleet_of(session), session.selection
    is_chosen = (chosen.source, chosen.source_tier) != (None, None)
    sources = fleet.sources().tolist() if is_chosen else [fleet.common_here()]
    pairs = [(one, other) for one in sources for other in fleet.chosen_targets(one)]
    return Table.of(
        GapRow,
        (row for pair in pairs if (row := _gap_row(fleet, *pair)) is not None),
        title=f"Orders that are kept, by the gap in {fleet.quantity.name} at the source",
        notes=fleet.notes(),
        explanation=explained("pairs/gaps", {"min_models": MIN_MODELS}),
    )


def _gap_row(fleet: PairFleet, source: int, target: int) -> GapRow | None:
    logs = fleet.logs[:, [source, target]]
    rows = np.flatnonzero(np.isfinite(logs).all(axis=1))
    if rows.size < MIN_MODELS:
        return None
    first, second = some_pairs(rows, np.random.default_rng(fleet.selection.seed))
    here, there = (logs[second] - logs[first]).T
    gaps, kept = np.exp(np.abs(here)), (1 + np.sign(here * there)) / 2
    bins = [kept[(low <= gaps) & (gaps < high)] for low, high in pairwise(_EDGES)]
    order = np.argsort(-gaps)
    share = np.cumsum(kept[order]) / np.arange(1, kept.size + 1)
    sure = np.flatnonzero(share >= SURE)
    shares = (float(one.mean()) if one.size else None for one in bins)
    names = ("below_1_1", "from_1_1", "from_1_25", "from_1_5", "from_2", "from_5")
    return GapRow(
        source=fleet.labels[fleet.panel.keys[source]],
        target=fleet.labels[fleet.panel.keys[target]],
        n_models=rows.size,
        kept=float(kept.mean()),
        gap_95=float(gaps[order][sure[-1]]) if sure.size else None,
        **dict(zip(names, shares, strict=True)),
    )

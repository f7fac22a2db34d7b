"""Which pairs of platforms are compared, and in which groups: by tier, or by runtime."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.pair_draws import PairDraws
from fleetrank.analysis.panel.pair_groups import PairGroup, runtime_groups, tier_groups
from fleetrank.analysis.panel.pair_means import MeanFigures, figures_of_mean
from fleetrank.analysis.panel.pairs import Pair
from fleetrank.analysis.panel.panel import measures
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS, select_pairs
from fleetrank.analysis.panel.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Pairs of platforms and their groups.

    Attributes:
        pairs: every pair that the selection names.
        groups: pairs from tier to tier, or from runtime to runtime; may be empty.
    """

    pairs: tuple[Pair, ...]
    groups: tuple[PairGroup, ...]

    @property
    def listed(self) -> tuple[Pair, ...]:
        """The pairs with a row of their own; empty if there are too many to list."""
        return self.pairs if len(self.pairs) <= MAX_LISTED_PAIRS else ()


def by_tier(session: Session) -> Compared:
    """Every selected pair; groups are of different devices at equal batch.

    Raises:
        NoDataError: fewer than two platforms match.
    """
    pairs = select_pairs(session.panel, session.selection)
    return Compared(pairs=tuple(pairs), groups=tuple(tier_groups(session.panel, pairs)))


def mean_of_listed(
    session: Session, pairs: Sequence[Pair], clusters: Sequence[int]
) -> MeanFigures | None:
    """The mean rho of latency over some listed pairs, from the draws that table `transfer` uses.

    A pair may have the other direction; each may occur once. `None` if no pair is listed.
    """
    listed = by_tier(session).listed
    if not listed:
        return None
    position = {frozenset(pair): at for at, pair in enumerate(listed)}
    chosen = np.array([position[frozenset(pair)] for pair in pairs])
    return figures_of_mean(session.once(_latency_draws), chosen, clusters)


def _latency_draws(session: Session) -> PairDraws:
    latency = measures(session.panel)[0]
    return PairDraws(latency, by_tier(session).listed, session.selection.seed)


def by_runtime(session: Session) -> Compared:
    """Selected pairs of one device, threads, batch and precision with different runtimes.

    Raises:
        NoDataError: no device was measured with two runtimes.
    """
    facts = session.panel.platforms.to_dicts()
    same = ("device", "threads", "batch", "precision")
    pairs = [
        (i, j)
        for i, j in select_pairs(session.panel, session.selection)
        if facts[i]["runtime"] != facts[j]["runtime"]
        and all(facts[i][name] == facts[j][name] for name in same)
    ]
    if not pairs:
        raise NoDataError(
            "no device was measured with two runtimes at equal threads, batch and precision",
            "add a runtime to the sweep",
        )
    return Compared(pairs=tuple(pairs), groups=tuple(runtime_groups(session.panel, pairs)))


COMPARED: Mapping[str, Callable[[Session], Compared]] = MappingProxyType(
    {"tier": by_tier, "runtime": by_runtime}
)
"""By the words of the setting `by` of table `transfer`."""

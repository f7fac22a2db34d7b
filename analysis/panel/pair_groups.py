"""Pairs of platforms grouped by two tiers or two runtimes, and how far their rankings agree."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import adjust_p
from fleetrank.analysis.panel.pair_draws import PairDraws
from fleetrank.analysis.panel.pair_figures import PairFigures, figures_of_pairs, pair_figures
from fleetrank.analysis.panel.pair_means import MeanFigures, figures_of_mean, mean_figures
from fleetrank.analysis.panel.pairs import Pair
from fleetrank.analysis.panel.panel import Measure, Panel
from fleetrank.analysis.stored.columns import TIERS
from fleetrank.analysis.stored.scope import EQUAL_INSIDE_PLATFORM

TIER_NOTE = (
    "Tier to tier: platforms of different devices at equal batch; mean inside a pair of device "
    "models (a cluster) first, then over clusters."
)
PREDICTION_NOTES = (
    TIER_NOTE,
    "Where statistics differ (`unlike`), such as a mean and a minimum, the figure is about "
    "predicting the target's own statistic; a constant factor between the two changes nothing.",
)
"""For figures that leave the scale free: a fitted line, or the ratio to a reference model."""
_MAX_VALUES = 2_000_000
"""Models x pairs processed at once: 16 MB an array."""

Row = dict[str, object]


class Level(StrEnum):
    """What a row of a table is about."""

    PLATFORM = "platform"
    PAIR = "pair"
    SOURCE = "source"
    """One source and every target."""
    TIER = "tier"
    """Two tiers, or one tier with itself."""
    RUNTIMES = "runtimes"
    WORKLOADS = "workloads"
    """Two workloads, on every platform that has both."""
    DEVICES = "devices"
    """One workload, on two different devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairGroup:
    """Pairs of platforms that have one figure together, for example from one tier to another.

    Attributes:
        level: `TIER` or `RUNTIMES`; `source` and `target` name two of these.
        pairs: those of one cluster are side by side if the group has a direction; otherwise they
            are in the caller's order.
        clusters: number of the cluster (a pair of device models) of each pair, (n_pairs,). The
            mean inside a cluster is computed first.
    """

    level: Level
    source: str
    target: str
    pairs: tuple[Pair, ...]
    clusters: npt.NDArray[np.int64]

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where each cluster of a group with a direction begins in `pairs`, (n_clusters,)."""
        return np.flatnonzero(np.diff(self.clusters, prepend=-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAgreement:
    """How far one measure ranks models alike on both sides of a group, as a mean over its pairs."""

    level: Level
    measure: str
    source: str
    target: str
    figures: MeanFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class PairAgreement:
    """How far one measure ranks models alike on two platforms.

    Attributes:
        source, target: platform keys.
        p_adjusted, residual_p_adjusted: `p_value` and `residual_p` of the figures with
            Benjamini-Hochberg over the pairs computed together.
        unlike: facts that differ and change the meaning of the figure; `None` without any.
    """

    measure: str
    source: str
    target: str
    figures: PairFigures
    p_adjusted: float | None
    residual_p_adjusted: float | None
    unlike: str | None

    @property
    def level(self) -> Level:
        """Two platforms."""
        return Level.PAIR


def tier_groups(
    panel: Panel, pairs: Sequence[Pair], *, is_directed: bool = False
) -> list[PairGroup]:
    """The pairs between different devices at equal batch, by tiers.

    At any batch, if the panel allows it: the selection asked for it.
    Without a direction, as for rho, the two tiers of a group are in their usual order; with one,
    from A to B and from B to A are two groups.
    """
    between = _between_devices(panel, pairs)
    return _groups(panel, between, Level.TIER, None if is_directed else _tier_order)


def runtime_groups(panel: Panel, pairs: Sequence[Pair]) -> list[PairGroup]:
    """Pairs by their two runtimes, in alphabetical order."""
    return _groups(panel, pairs, Level.RUNTIMES, str)


def _between_devices(panel: Panel, pairs: Sequence[Pair]) -> list[Pair]:
    device, batch = panel.platforms["device"].to_list(), panel.platforms["batch"].to_list()
    is_any = panel.allows_unlike_batch
    return [(i, j) for i, j in pairs if device[i] != device[j] and (is_any or batch[i] == batch[j])]


def _groups(
    panel: Panel, pairs: Iterable[Pair], level: Level, order: Callable[[str], object] | None
) -> list[PairGroup]:
    """Groups by the fact of the level; `order` sorts the two of a pair, `None` keeps them."""
    is_directed = order is None
    fact = {Level.TIER: "tier", Level.RUNTIMES: "runtime"}[level]
    names = [str(name) for name in panel.platforms[fact].to_list()]
    kinds = [str(kind) for kind in panel.platforms["device_model"].to_list()]
    members: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for i, j in pairs:
        key = (names[i], names[j])
        if order is not None:
            first, second = sorted(key, key=order)  # type: ignore[arg-type]
            key = (first, second)
        members[key].append((i, j))
    found = []
    for (source, target), mine in sorted(members.items()):
        clusters = [_cluster(kinds[i], kinds[j], is_directed) for i, j in mine]
        found.append(pair_group(level, (source, target), mine, clusters, is_directed=is_directed))
    return found


def _cluster(source: str, target: str, is_directed: bool) -> str:
    """The name of two device models; without a direction in alphabetical order."""
    return f"{source} -> {target}" if is_directed else " + ".join(sorted((source, target)))


def pair_group(
    level: Level,
    between: tuple[str, str],
    pairs: Sequence[Pair],
    clusters: Sequence[str],
    *,
    is_directed: bool = False,
) -> PairGroup:
    """A group of pairs in any order; `clusters` has the name of each one's cluster."""
    _, code = np.unique(clusters, return_inverse=True)
    order = np.argsort(code, kind="stable") if is_directed else np.arange(len(pairs))
    return PairGroup(
        level=level,
        source=between[0],
        target=between[1],
        pairs=tuple(pairs[at] for at in order.tolist()),
        clusters=code[order],
    )


def _tier_order(tier: str) -> int:
    return TIERS.index(tier) if tier in TIERS else len(TIERS)


def chunks(
    group: PairGroup, n_rows: int
) -> Iterator[tuple[tuple[Pair, ...], npt.NDArray[np.int64]]]:
    """A few whole clusters at a time, as their pairs and where each cluster begins in them.

    Arrays of `n_rows` rows over such a chunk stay small, so that the pairs of a fleet need not be
    in memory together.
    """
    limit = max(1, _MAX_VALUES // n_rows)
    starts = group.starts
    bounds = np.append(starts, len(group.pairs))
    first = 0
    while first < starts.size:
        last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + limit, "right")) - 1)
        yield group.pairs[bounds[first] : bounds[last]], bounds[first:last] - bounds[first]
        first = last


def group_agreement(group: PairGroup, measure: Measure, seed: int) -> GroupAgreement:
    """The mean over the pairs of the group."""
    found = mean_figures(measure, group.pairs, group.clusters, seed)
    return _agreement(group, measure, found)


def _agreement(group: PairGroup, measure: Measure, figures: MeanFigures) -> GroupAgreement:
    return GroupAgreement(
        level=group.level,
        measure=measure.name,
        source=group.source,
        target=group.target,
        figures=figures,
    )


def pair_agreements(
    panel: Panel, measure: Measure, pairs: Sequence[Pair], seed: int
) -> Iterator[PairAgreement]:
    """Every pair, in the order given; p-values are adjusted over them."""
    return _agreements(panel, measure, pairs, pair_figures(measure, pairs, seed))


def agreements(
    panel: Panel, groups: Sequence[PairGroup], pairs: Sequence[Pair], measure: Measure, seed: int
) -> tuple[list[GroupAgreement], list[PairAgreement]]:
    """Of groups and of the pairs that they are made of, with the same draws for both.

    Without pairs, because they are too many to list, each group has separate draws.
    """
    if not pairs:
        return [group_agreement(group, measure, seed) for group in groups], []
    drawn = PairDraws(measure, pairs, seed)
    chosen = positions_of(groups, pairs)
    means = [
        figures_of_mean(drawn, at, group.clusters) for group, at in zip(groups, chosen, strict=True)
    ]
    return (
        [_agreement(group, measure, mean) for group, mean in zip(groups, means, strict=True)],
        list(_agreements(panel, measure, pairs, figures_of_pairs(drawn))),
    )


def positions_of(groups: Iterable[PairGroup], pairs: Sequence[Pair]) -> list[npt.NDArray[np.int64]]:
    """Where each group's pairs are among `pairs`, (n_pairs of the group,) each."""
    position = {pair: at for at, pair in enumerate(pairs)}
    return [np.array([position[pair] for pair in group.pairs]) for group in groups]


def _agreements(
    panel: Panel, measure: Measure, pairs: Sequence[Pair], figures: Sequence[PairFigures]
) -> Iterator[PairAgreement]:
    adjusted = adjust_p([figure.p_value for figure in figures])
    residual = adjust_p([figure.residual_p for figure in figures])
    facts, keys = panel.platforms.to_dicts(), panel.keys
    for at, (i, j) in enumerate(pairs):
        yield PairAgreement(
            measure=measure.name,
            source=keys[i],
            target=keys[j],
            figures=figures[at],
            p_adjusted=adjusted[at],
            residual_p_adjusted=residual[at],
            unlike=unlike_facts(facts[i], facts[j]),
        )


def agreement_row(one: GroupAgreement | PairAgreement) -> Row:
    """Its names and figures as the row of a table; a column that it does not have is absent."""
    row: Row = {
        "level": one.level, "measure": one.measure, "source": one.source, "target": one.target
    }  # fmt: skip
    if isinstance(one, PairAgreement):
        row |= {
            "p_adjusted": one.p_adjusted,
            "residual_p_adjusted": one.residual_p_adjusted,
            "unlike": one.unlike,
        }
    return row | asdict(one.figures)


def unlike_facts(source: Mapping[str, object], target: Mapping[str, object]) -> str | None:
    """Facts that may differ between platforms but change the meaning of the figure.

    Both are rows of `Panel.platforms`; `None` without a difference.
    """
    texts = [
        f"{name}: {_stated(source[name])} / {_stated(target[name])}"
        for name in EQUAL_INSIDE_PLATFORM
        if source[name] != target[name]
    ]
    return "; ".join(texts) or None


def _stated(value: object) -> object:
    return "not stated" if value is None else value

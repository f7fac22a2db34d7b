"""Pairs of platforms grouped by two tiers or two runtimes, and rows of their figures."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from fleetrank.analysis.arrays.bootstrap import adjust_p
from fleetrank.analysis.panel.pair_means import mean_figures
from fleetrank.analysis.panel.pairs import Pair, pair_figures
from fleetrank.analysis.panel.panel import Measure, Panel
from fleetrank.analysis.stored.columns import TIERS
from fleetrank.analysis.stored.comparable import EQUAL_INSIDE_PLATFORM

Row = dict[str, object]
_Facts = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairGroup:
    """Pairs whose mean is the figure of source and target.

    Attributes:
        clusters: for every pair, its two device models; the mean inside each is computed first.
    """

    level: str
    source: str
    target: str
    pairs: tuple[Pair, ...]
    clusters: tuple[str, ...]


def tier_groups(panel: Panel, pairs: Sequence[Pair]) -> list[PairGroup]:
    """`between_devices`, by tiers in their own order: rho has no direction."""
    return _groups(panel, between_devices(panel, pairs), "tier", _tier_order)


def between_devices(panel: Panel, pairs: Sequence[Pair]) -> list[Pair]:
    """Pairs of different devices at equal batch: the pairs of a mean over tiers."""
    device, batch = panel.platforms["device"].to_list(), panel.platforms["batch"].to_list()
    return [(i, j) for i, j in pairs if device[i] != device[j] and batch[i] == batch[j]]


def runtime_groups(panel: Panel, pairs: Sequence[Pair]) -> list[PairGroup]:
    """Pairs by their two runtimes, in alphabetical order."""
    return _groups(panel, pairs, "runtime", str)


def _groups(
    panel: Panel, pairs: Iterable[Pair], fact: str, order: Callable[[str], object]
) -> list[PairGroup]:
    facts = panel.platforms.to_dicts()
    members: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for i, j in pairs:
        first, second = sorted((str(facts[i][fact]), str(facts[j][fact])), key=order)  # type: ignore[arg-type]
        members[first, second].append((i, j))
    return [
        PairGroup(
            level="runtimes" if fact == "runtime" else fact,
            source=source,
            target=target,
            pairs=tuple(found),
            clusters=tuple(_cluster(facts[i], facts[j]) for i, j in found),
        )
        for (source, target), found in sorted(members.items())
    ]


def _tier_order(tier: str) -> int:
    return TIERS.index(tier) if tier in TIERS else len(TIERS)


def _cluster(source: _Facts, target: _Facts) -> str:
    return " + ".join(sorted((str(source["device_model"]), str(target["device_model"]))))


def group_rows(group: PairGroup, found: Iterable[Measure], seed: int) -> list[Row]:
    """One row per measure: its mean over the pairs of the group."""
    return [
        {
            "level": group.level,
            "measure": measure.name,
            "source": group.source,
            "target": group.target,
        }
        | asdict(mean_figures(measure, group.pairs, group.clusters, seed))
        for measure in found
    ]


def pair_rows(panel: Panel, measure: Measure, pairs: Sequence[Pair], seed: int) -> list[Row]:
    """One row per pair, with p-values adjusted over them."""
    figures = pair_figures(measure, pairs, seed)
    adjusted = adjust_p([figure.p_value for figure in figures])
    facts, keys = panel.platforms.to_dicts(), panel.keys
    return [
        {
            "level": "pair",
            "measure": measure.name,
            "source": keys[i],
            "target": keys[j],
            "p_adjusted": p_adjusted,
            "unlike": unlike_facts(facts[i], facts[j]),
        }
        | asdict(figure)
        for (i, j), figure, p_adjusted in zip(pairs, figures, adjusted, strict=True)
    ]


def unlike_facts(source: Mapping[str, object], target: Mapping[str, object]) -> str | None:
    """Facts that may differ between platforms but change the meaning of the figure.

    Both are rows of `Panel.platforms`; `None` without a difference.
    """
    texts = [
        f"{name}: {source[name]} / {target[name]}"
        for name in EQUAL_INSIDE_PLATFORM
        if source[name] != target[name]
    ]
    return "; ".join(texts) or None

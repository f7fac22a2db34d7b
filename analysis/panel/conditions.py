"""Conditions under which models are ranked, and the pairs of them that are compared.

A condition is a column of values: a platform, or a workload, version, sweep or repeat on it. Two
conditions are compared along an axis if they differ in it and are equal in what else could change
the order. To add an axis: a word in `foundation.vocabulary.Axis`, and its rule in `AXES`.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.panel import Measure, Panel, has_memory, measures
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.cell_notes import banners
from fleetrank.analysis.stored.chosen_workload import named
from fleetrank.analysis.stored.columns import TIERS
from fleetrank.analysis.stored.name_patterns import fits_platform
from fleetrank.analysis.stored.scope import EQUAL_INSIDE_PLATFORM
from fleetrank.analysis.stored.selection import Selection
from fleetrank.foundation.vocabulary import Axis
from fleetrank.foundation.wording import count_of
from fleetrank.foundation.workload import IMAGE

MAX_LISTED_PAIRS = 5000
"""More pairs are not listed; means over tiers are still computed."""
MAX_DIRECTED_PAIRS = 500_000
"""Those of 700 platforms. Each table over more takes 3 to 9 s per million pairs, and 0.7 GB."""
MAX_VALUES = 20
"""Of an axis inside platforms, such as sweeps: each one needs a panel."""
_NAMED = 20
"""Maximum platforms in an error message."""
_MAX_VALUES = 2_000_000
"""Models x pairs processed at once: 16 MB an array."""

Pair = tuple[int, int]
"""Column numbers of source and target."""
Row = dict[str, object]


class Level(StrEnum):
    """What a row of a table is about."""

    PLATFORM = "platform"
    PAIR = "pair"
    SOURCE = "source"
    """One source and every target."""
    TIER = "tier"
    """Two tiers, or one tier with itself."""
    DEVICES = "devices"
    """One workload, on two different devices."""
    RUNTIMES = "runtimes"
    BACKENDS = "backends"
    MODES = "modes"
    PRECISIONS = "precisions"
    THREADS = "threads"
    BATCHES = "batches"
    WORKLOADS = "workloads"
    """Two workloads, on every platform that has both; the same for versions, sweeps, repeats."""
    VERSIONS = "versions"
    SWEEPS = "sweeps"
    REPEATS = "repeats"


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """What a figure is between: two platforms, tiers, or other groups as the level says."""

    level: Level
    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCounts:
    """Pairs of platforms, and of device models, that have a figure."""

    n_pairs: int
    n_clusters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisRule:
    """In what two conditions differ, and in what they are equal.

    Attributes:
        level: of the groups of such pairs.
        fact: the column that differs.
        equal: the columns that are equal.
        grouped_by: the column whose two values name a group; `fact` if it is empty.
    """

    level: Level
    fact: str
    equal: tuple[str, ...]
    grouped_by: str = ""

    @property
    def is_inside_platform(self) -> bool:
        """Whether a platform has several such conditions; each value then has its own panel."""
        return self.equal == _ONE_PLATFORM


_ONE_PLATFORM = ("platform_key",)
_SETTINGS = ("device", "runtime", "backend", "mode", "precision", "batch", "threads", "affinity",
             "options", "axes")  # fmt: skip
"""What a platform key consists of."""


def _rest(*without: str) -> tuple[str, ...]:
    return tuple(name for name in _SETTINGS if name not in without)


AXES: Mapping[Axis, AxisRule] = MappingProxyType(
    {
        Axis.DEVICE: AxisRule(
            level=Level.TIER, fact="device", equal=("batch",), grouped_by="tier"
        ),
        # Backends, modes and options belong to a runtime, and an option to a backend.
        Axis.RUNTIME: AxisRule(
            level=Level.RUNTIMES, fact="runtime", equal=("device", "threads", "batch", "precision")
        ),
        Axis.BACKEND: AxisRule(
            level=Level.BACKENDS, fact="backend", equal=_rest("backend", "mode", "options")
        ),
        Axis.MODE: AxisRule(level=Level.MODES, fact="mode", equal=_rest("mode", "options")),
        Axis.PRECISION: AxisRule(
            level=Level.PRECISIONS, fact="precision", equal=_rest("precision")
        ),
        Axis.THREADS: AxisRule(
            level=Level.THREADS, fact="threads", equal=_rest("threads", "affinity")
        ),
        Axis.BATCH: AxisRule(level=Level.BATCHES, fact="batch", equal=_rest("batch")),
        Axis.WORKLOAD: AxisRule(level=Level.WORKLOADS, fact="workload", equal=_ONE_PLATFORM),
        Axis.VERSION: AxisRule(level=Level.VERSIONS, fact="runtime_version", equal=_ONE_PLATFORM),
        Axis.SWEEP: AxisRule(level=Level.SWEEPS, fact="sweep_id", equal=_ONE_PLATFORM),
        Axis.REPEAT: AxisRule(level=Level.REPEATS, fact="repeat", equal=_ONE_PLATFORM),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionTable:
    """What ranks models: one column for each condition.

    Attributes:
        columns: one row for each, in column order: `platform_key` and its facts, and the value of
            an axis inside platforms.
        measures: latency and FRM, (n_models, n_columns) each.
        left_out: values of the axis that cannot be ranked, each with the reason.
        banners: notes on rows of devices that are not real.
    """

    n_models: int
    columns: pl.DataFrame
    measures: tuple[Measure, ...]
    left_out: tuple[str, ...] = ()
    banners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairGroup:
    """Pairs of conditions that have one figure together, for example from one tier to another.

    Attributes:
        source, target: two tiers, runtimes, or other values of the axis.
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
class Compared:
    """Pairs of conditions along an axis, and their groups.

    Attributes:
        pairs: those with a row of their own. Along devices every pair that the selection names;
            else those that differ in the axis and are equal in the rest.
        groups: pairs that differ in the axis and are equal in the rest, by their two values.
    """

    rule: AxisRule
    conditions: ConditionTable
    pairs: tuple[Pair, ...]
    groups: tuple[PairGroup, ...]

    @property
    def listed(self) -> tuple[Pair, ...]:
        """The pairs with a row of their own; empty if there are too many to list."""
        return self.pairs if len(self.pairs) <= MAX_LISTED_PAIRS else ()


def compared(session: Session, axis: Axis) -> Compared:
    """The selected pairs along an axis; made once a session.

    Raises:
        NoDataError: no two selected conditions differ in the axis and are equal in the rest.
    """
    return session.once(_compared, axis)


def _compared(session: Session, axis: Axis) -> Compared:
    rule, selection = AXES[axis], session.selection
    if rule.is_inside_platform:
        conditions = _side_by_side(session, rule)
    else:
        panel = session.panel
        conditions = ConditionTable(
            n_models=len(panel.models), columns=panel.platforms, measures=measures(panel)
        )
    if axis is Axis.DEVICE:
        pairs = select_pairs(session.panel, selection)
        groups = tier_groups(session.panel, pairs)
    else:
        chosen = _chosen_columns(conditions.columns, selection)
        pairs = axis_pairs(conditions.columns, rule, *map(frozenset, chosen))
        if axis is Axis.WORKLOAD and selection.workload is not None:
            of = conditions.columns["workload"].to_list()
            pairs = [pair for pair in pairs if selection.workload in {of[at] for at in pair}]
        if not pairs:
            raise _nothing_along(axis, conditions)
        groups = axis_groups(conditions.columns, pairs, rule)
    return Compared(rule=rule, conditions=conditions, pairs=tuple(pairs), groups=tuple(groups))


def _nothing_along(axis: Axis, conditions: ConditionTable) -> NoDataError:
    rule = AXES[axis]
    if rule.is_inside_platform:
        values = conditions.columns[rule.fact].unique(maintain_order=True).to_list()
        return NoDataError(
            f"no platform has two of the {rule.level} {named(values)}",
            "measure them on the same platform",
        )
    equal = ", ".join(rule.equal[:-1]) + f" and {rule.equal[-1]}"
    return NoDataError(
        f"no two platforms differ in {axis} and are equal in {equal}",
        f"measure the same models with other {rule.level}, or select more rows",
    )


def axis_pairs(
    columns: pl.DataFrame, rule: AxisRule, sources: frozenset[int], targets: frozenset[int]
) -> list[Pair]:
    """Pairs of columns that differ in the axis and are equal in the rest; a null is not a value."""
    alike: dict[tuple[object, ...], list[tuple[int, object]]] = defaultdict(list)
    for number, (value, *same) in enumerate(columns.select(rule.fact, *rule.equal).iter_rows()):
        if value is not None:
            alike[tuple(same)].append((number, value))
    unlike = (
        (i, j)
        for some in alike.values()
        for (i, first), (j, second) in itertools.combinations(some, 2)
        if first != second
    )
    oriented = (
        pair if pair[0] in sources and pair[1] in targets else pair[::-1] for pair in unlike
    )
    return sorted((i, j) for i, j in oriented if i in sources and j in targets)


def axis_groups(
    columns: pl.DataFrame, pairs: Sequence[Pair], rule: AxisRule, *, is_directed: bool = False
) -> list[PairGroup]:
    """The pairs by their two values of the axis.

    Without a direction, as for rho, the two values are in their usual order; with one, from A to B
    and from B to A are two groups.
    """
    if not pairs:
        return []
    name = rule.grouped_by or rule.fact
    values = columns[name].unique(maintain_order=True).to_list()
    # A panel for each value has them in the order of lists already.
    has_order = rule.is_inside_platform or name == "workload"
    usual = values if has_order else _in_order(name, values)
    sides = np.array(pairs, dtype=np.int64)
    place = {value: at for at, value in enumerate(usual)}
    between = np.array([place[value] for value in columns[name]])[sides]
    kind = columns.select(pl.coalesce("device_model", "device").cast(pl.String)).to_series()
    kinds = np.unique(kind.to_numpy(), return_inverse=True)[1].reshape(-1)[sides]
    if not is_directed:
        between, kinds = np.sort(between, axis=1), np.sort(kinds, axis=1)
    code, n_kinds = between[:, 0] * len(usual) + between[:, 1], len(columns)
    groups = []
    for one in np.unique(code).tolist():
        where = np.flatnonzero(code == one)
        first, second = (str(usual[at]) for at in divmod(one, len(usual)))
        groups.append(
            pair_group(
                rule.level,
                (first, second),
                [pairs[at] for at in where.tolist()],
                kinds[where, 0] * n_kinds + kinds[where, 1],
                is_directed=is_directed,
            )
        )
    is_by_name = rule.level is Level.TIER
    return sorted(groups, key=lambda one: (one.source, one.target)) if is_by_name else groups


def _in_order(name: str, values: Sequence[object]) -> list[object]:
    if name == "tier":
        return sorted(values, key=lambda tier: TIERS.index(tier) if tier in TIERS else len(TIERS))
    return sorted(values, key=lambda value: (isinstance(value, str), value))


def pair_group(
    level: Level,
    between: tuple[str, str],
    pairs: Sequence[Pair],
    clusters: npt.ArrayLike,
    *,
    is_directed: bool = False,
) -> PairGroup:
    """A group of pairs in any order; `clusters` has the name or number of each one's cluster."""
    _, code = np.unique(clusters, return_inverse=True)
    order = np.argsort(code, kind="stable") if is_directed else np.arange(len(pairs))
    return PairGroup(
        level=level,
        source=between[0],
        target=between[1],
        pairs=tuple(pairs[at] for at in order.tolist()),
        clusters=code[order],
    )


def tier_groups(
    panel: Panel, pairs: Sequence[Pair], *, is_directed: bool = False
) -> list[PairGroup]:
    """The pairs between different devices at equal batch, by tiers.

    At any batch, if the panel allows it: the selection asked for it.
    """
    device, batch = panel.platforms["device"].to_list(), panel.platforms["batch"].to_list()
    is_any = panel.allows_unlike_batch
    between = [
        (i, j) for i, j in pairs if device[i] != device[j] and (is_any or batch[i] == batch[j])
    ]
    return axis_groups(panel.platforms, between, AXES[Axis.DEVICE], is_directed=is_directed)


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


def _side_by_side(session: Session, rule: AxisRule) -> ConditionTable:
    """A panel for each value of an axis inside platforms, as columns side by side."""
    panels, left_out, shown = dict[str, Panel](), list[str](), list[pl.DataFrame]()
    for value, part in _parts(session, rule).items():
        try:
            panels[value] = part.panel
        except AnalysisError as error:
            left_out.append(f"Left out: {value}, because {error.message}.")
        else:
            shown.append(part.cells.cells)
    if len(panels) < 2:
        raise _too_few(session, rule, left_out)
    models = sorted({name for panel in panels.values() for name in panel.models})
    at = {name: number for number, name in enumerate(models)}
    is_alike = rule.fact != "workload"
    is_whole = any(map(has_memory, panels.values()))
    spread = [
        [
            _spread(one, [at[name] for name in panel.models], len(models))
            for one in measures(panel, with_memory=is_whole)
        ]
        for panel in panels.values()
    ]
    return ConditionTable(
        n_models=len(models),
        columns=pl.concat(
            panel.platforms.with_columns(pl.lit(value).alias(rule.fact))
            for value, panel in panels.items()
        ),
        measures=tuple(_joined(same, is_alike=is_alike) for same in zip(*spread, strict=True)),
        left_out=tuple(left_out),
        banners=banners(pl.concat(shown)),
    )


def _parts(session: Session, rule: AxisRule) -> dict[str, Session]:
    """A session for each value of the axis."""
    if rule.fact == "workload":
        every = [one for one in session.workloads if one != str(IMAGE)]
        return {one: session.of_workload(one) for one in every}
    ok = session.attempts.filter(pl.col("status") == "ok")
    values = ok.select(pl.col(rule.fact).drop_nulls().unique().sort()).collect().to_series()
    if len(values) > MAX_VALUES:
        raise AnalysisError(
            f"{len(values)} {rule.level} are too many to compare, at most {MAX_VALUES}",
            "choose fewer with `sweep=`",
        )
    return {str(value): session.narrowed(pl.col(rule.fact) == value) for value in values}


def _too_few(session: Session, rule: AxisRule, left_out: Sequence[str]) -> NoDataError:
    if rule.fact == "workload":
        have = named(session.workloads) or "none"
        said = f"two workloads with tokens are needed, and the results have {have}."
        return NoDataError(
            " ".join((said, *left_out)).rstrip("."),
            "measure prompts and steps, such as `workloads: [prefill@128, decode@128]` in a sweep",
        )
    return NoDataError(
        " ".join((f"the selected rows have fewer than two {rule.level}.", *left_out)).rstrip("."),
        "measure the same cells again, or select more rows",
    )


def _spread(measure: Measure, rows: Sequence[int], n_models: int) -> Measure:
    """The measure over more models; NaN for those that its panel lacks."""

    def over_all(values: Floats) -> Floats:
        full = np.full((n_models, *values.shape[1:]), np.nan)
        full[rows] = values
        return full

    flops = None if measure.flops is None else over_all(measure.flops)
    rest, latency = over_all(measure.rest), over_all(measure.latency)
    return replace(measure, rest=rest, latency=latency, flops=flops)


def _joined(same: Sequence[Measure], *, is_alike: bool) -> Measure:
    """One measure of several panels; FLOPs of a model are kept if they are equal in all."""
    flops = np.stack([one.flops for one in same if one.flops is not None])
    known = np.where(np.isnan(flops), -1.0, flops).max(axis=0)
    return replace(
        same[0],
        rest=np.hstack([one.rest for one in same]),
        latency=np.hstack([one.latency for one in same]),
        flops=np.where(known > 0, known, np.nan) if is_alike else None,
    )


def select_pairs(panel: Panel, selection: Selection) -> list[Pair]:
    """Every selected pair of platforms, each once, source first.

    Raises:
        NoDataError: fewer than two platforms match.
    """
    sources, targets = chosen_platforms(panel, selection)
    if sources == targets:
        pairs = list(itertools.combinations(sources, 2))
    else:
        unordered = {
            frozenset((i, j)): (i, j) for i in reversed(sources) for j in targets if i != j
        }
        pairs = sorted(unordered.values())
    if not pairs:
        raise _nothing_to_compare(panel)
    return pairs


def directed_pairs(panel: Panel, selection: Selection) -> list[Pair]:
    """Every ordered pair from a chosen source to another platform that is a chosen target.

    Above `MAX_DIRECTED_PAIRS` a random part of them, drawn with the seed of the selection.

    Raises:
        NoDataError: fewer than two platforms match.
    """
    sources, targets = chosen_platforms(panel, selection)
    n_pairs = _count_directed(sources, targets)
    if n_pairs == 0:
        raise _nothing_to_compare(panel)
    if n_pairs <= MAX_DIRECTED_PAIRS:
        return [(i, j) for i in sources for j in targets if i != j]
    n_cells, rng = len(sources) * len(targets), np.random.default_rng(selection.seed)
    drawn = rng.choice(n_cells, MAX_DIRECTED_PAIRS, replace=False, shuffle=False)
    at, to = np.divmod(np.sort(drawn), len(targets))
    columns = zip(np.array(sources)[at].tolist(), np.array(targets)[to].tolist(), strict=True)
    return [(i, j) for i, j in columns if i != j]


def _count_directed(sources: list[int], targets: list[int]) -> int:
    return len(sources) * len(targets) - len(set(sources) & set(targets))


def chosen_platforms(panel: Panel, selection: Selection) -> tuple[list[int], list[int]]:
    """Columns of the sources and of the targets that the selection names."""
    return _chosen_columns(panel.platforms, selection)


def _chosen_columns(columns: pl.DataFrame, selection: Selection) -> tuple[list[int], list[int]]:
    numbered = columns.with_row_index("at")
    sources, targets = (
        numbered.filter(fits_platform(pattern, tier))["at"].to_list()
        for pattern, tier in (
            (selection.source, selection.source_tier), (selection.target, selection.target_tier)
        )
    )  # fmt: skip
    return sources, targets


def unlisted(pairs: Sequence[Pair], session: Session | None = None) -> str:
    """A note that too many pairs exist to list them, and how to see some.

    With the `session` of directed pairs it also says how many of them were drawn, if not all.
    """
    if session is not None and (note := sampled(session, len(pairs))):
        return f"{note[0]} None is listed: choose fewer with `source=` or `target=`."
    return (
        f"{count_of(len(pairs), 'pair')} of platforms are not listed (over {MAX_LISTED_PAIRS}): "
        "choose fewer with `source=` or `target=`."
    )


def sampled(session: Session, n_used: int) -> tuple[str, ...]:
    """A note that figures use a part of the directed pairs; empty if they use all."""
    n_all = _count_directed(*chosen_platforms(session.panel, session.selection))
    if n_all <= MAX_DIRECTED_PAIRS:
        return ()
    return (
        f"Figures over a random {n_used:,} of {n_all:,} directed pairs of platforms (seed "
        f"{session.selection.seed}); this moves a mean over n of them by up to 2 / sqrt(n) of "
        "their standard deviation, which intervals do not contain.",
    )


def _nothing_to_compare(panel: Panel) -> NoDataError:
    known = ", ".join([*panel.keys[:_NAMED], *(["..."] if len(panel.keys) > _NAMED else [])])
    more = "measure it on another device or runtime, or select more rows; "
    return NoDataError(
        "no two platforms in the selection can be compared",
        f"{more if len(panel.keys) == 1 else ''}measured platforms: {known}; "
        + " ".join(panel.notes),
    )


def unlike_facts(source: Mapping[str, object], target: Mapping[str, object]) -> str | None:
    """Facts that may differ between platforms but change the meaning of the figure.

    Both are rows of `Panel.platforms`; `None` without a difference. An unknown border
    is like any other: only files that were read have one.
    """
    names = list(EQUAL_INSIDE_PLATFORM)
    if None not in (source["border"], target["border"]):
        names.append("border")
    texts = [
        f"{name}: {_stated(source[name])} / {_stated(target[name])}"
        for name in names
        if source[name] != target[name]
    ]
    return "; ".join(texts) or None


def _stated(value: object) -> object:
    return "not stated" if value is None else value

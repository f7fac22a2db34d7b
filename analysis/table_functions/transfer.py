"""Does a ranking carry over? Between platforms, between tiers, between runtimes."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict

import polars as pl

from analysis.bootstrap import adjust_p
from analysis.columns import TIERS
from analysis.comparable import EQUAL_INSIDE_PLATFORM
from analysis.errors import NoDataError
from analysis.pair_means import mean_figures
from analysis.pairs import Pair, draws_for, pair_figures
from analysis.panel import Measure, Panel, incomplete_notes, make_panel, measures
from analysis.scope import count_of, fits_platform
from analysis.tables import Selection, Table

MAX_LISTED_PAIRS = 5000
"""More pairs than this nobody reads; means over tiers are given all the same."""

_NAMED = 20
"""Platforms an error message lists."""

_SCHEMA = {
    "level": pl.String,
    "measure": pl.String,
    "source": pl.String,
    "target": pl.String,
    "n_models": pl.Int64,
    "n_pairs": pl.Int64,
    "n_clusters": pl.Int64,
    "rho": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "null_mean": pl.Float64,
    "null_p95": pl.Float64,
    "headroom": pl.Float64,
    "p_value": pl.Float64,
    "p_adjusted": pl.Float64,
    "tau_b": pl.Float64,
    "std_over_pairs": pl.Float64,
    "unlike": pl.String,
    "reason": pl.String,
}

Row = dict[str, object]
GroupOf = Callable[[dict[str, object], dict[str, object]], tuple[str, str]]

_MEANING = (
    "rho: Spearman's, ranks taken inside the pair over common models; it is symmetric, so a pair "
    "is listed once.",
    "FRM's null: its rho with latencies permuted on every platform. FLOPs are one third of FRM and "
    "the same everywhere, so FRM correlates even where latency does not transfer at all; headroom "
    "= (rho - null_mean) / (1 - null_mean).",
    "low to high: 95 % percentile bootstrap over models, from 9 models on.",
    "p_value: of a pair's latency two-sided by permutation (exact up to 8 models), otherwise "
    "one-sided against the null; p_adjusted: Benjamini-Hochberg over the listed pairs of a "
    "measure. For means over pairs with unlike common models null_p95 and p_value are upper "
    "bounds.",
)


def transfer_table(frame: pl.LazyFrame, selection: Selection) -> Table:
    """Rank transfer from tier to tier and for every pair of platforms, latency and FRM."""
    panel = make_panel(frame, selection)
    pairs = select_pairs(panel, selection)
    tiers = between_devices(panel, pairs)
    note = (
        "Tier to tier: platforms of unlike devices at equal batch; mean inside a pair of device "
        "models (a cluster) first, then over clusters; std_over_pairs is their spread and no "
        "uncertainty."
    )
    rows = _mean_rows(panel, tiers, "tier", _tiers_of, selection.seed)
    if not tiers:
        note = "Tier to tier: undefined, no two devices were measured at equal batch."
    return _finish("Rank transfer", panel, rows, pairs, (note, selection))


def frameworks_table(frame: pl.LazyFrame, selection: Selection) -> Table:
    """Framework invariance: the same device, threads, batch and precision, another runtime."""
    panel = make_panel(frame, selection)
    facts = panel.platforms.to_dicts()
    same = ("device", "threads", "batch", "precision")
    pairs = [
        (i, j)
        for i, j in select_pairs(panel, selection)
        if facts[i]["runtime"] != facts[j]["runtime"]
        and all(facts[i][name] == facts[j][name] for name in same)
    ]
    if not pairs:
        raise NoDataError(
            "no device was measured with two runtimes at equal threads, batch and precision",
            "add a runtime to the sweep",
        )
    rows = _mean_rows(panel, pairs, "runtimes", _runtimes_of, selection.seed)
    note = "Runtimes: mean inside a device model (a cluster) first, then over device models."
    return _finish("Framework invariance", panel, rows, pairs, (note, selection))


def select_pairs(panel: Panel, selection: Selection) -> list[Pair]:
    """Every pair the selection asks for, each once, source first.

    Raises:
        NoDataError: fewer than two platforms fit.
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
        raise nothing_to_compare(panel)
    return pairs


def chosen_platforms(panel: Panel, selection: Selection) -> tuple[list[int], list[int]]:
    """Columns of the sources and of the targets that the selection names."""
    return (
        _chosen(panel, selection.source, selection.source_tier),
        _chosen(panel, selection.target, selection.target_tier),
    )


def nothing_to_compare(panel: Panel) -> NoDataError:
    """What to raise where fewer than two platforms fit; the remedy names those there are."""
    known = ", ".join([*panel.keys[:_NAMED], *(["..."] if len(panel.keys) > _NAMED else [])])
    return NoDataError(
        "no two platforms to compare fit the selection",
        f"measured are {known}; " + " ".join(panel.notes),
    )


def _chosen(panel: Panel, pattern: str | None, tier: str | None) -> list[int]:
    return panel.platforms.with_row_index("at").filter(fits_platform(pattern, tier))["at"].to_list()


def between_devices(panel: Panel, pairs: Sequence[Pair]) -> list[Pair]:
    """Pairs of unlike devices at equal batch: those that a mean over tiers is made of."""
    device, batch = panel.platforms["device"].to_list(), panel.platforms["batch"].to_list()
    return [(i, j) for i, j in pairs if device[i] != device[j] and batch[i] == batch[j]]


def _mean_rows(
    panel: Panel, pairs: Sequence[Pair], level: str, group_of: GroupOf, seed: int
) -> list[Row]:
    facts = panel.platforms.to_dicts()
    groups: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for i, j in pairs:
        groups[group_of(facts[i], facts[j])].append((i, j))
    rows = []
    for (source, target), members in sorted(groups.items()):
        clusters = [_cluster(facts[i], facts[j]) for i, j in members]
        for measure in measures(panel):
            figures = mean_figures(measure, members, clusters, seed)
            rows.append(
                {"level": level, "measure": measure.name, "source": source, "target": target}
                | asdict(figures)
            )
    return rows


def _tiers_of(source: dict[str, object], target: dict[str, object]) -> tuple[str, str]:
    """Tiers in their own order, since rho has no direction."""
    first, second = sorted((str(source["tier"]), str(target["tier"])), key=_tier_order)
    return first, second


def _tier_order(tier: str) -> int:
    return TIERS.index(tier) if tier in TIERS else len(TIERS)


def _runtimes_of(source: dict[str, object], target: dict[str, object]) -> tuple[str, str]:
    first, second = sorted((str(source["runtime"]), str(target["runtime"])))
    return first, second


def _cluster(source: dict[str, object], target: dict[str, object]) -> str:
    return " + ".join(sorted((str(source["device_model"]), str(target["device_model"]))))


def _finish(
    title: str,
    panel: Panel,
    means: list[Row],
    pairs: Sequence[Pair],
    context: tuple[str, Selection],
) -> Table:
    note, selection = context
    is_listed = len(pairs) <= MAX_LISTED_PAIRS
    rows = list(means)
    if is_listed:
        for measure in measures(panel):
            rows += _pair_rows(panel, measure, pairs, selection.seed)
    draws = draws_for(pairs)
    drawn = (
        f"Seed {selection.seed}: {draws.bootstrap} resamples, {draws.permutation} permutations, "
        f"{draws.null} draws of the null."
    )
    hidden = () if is_listed else (unlisted(pairs),)
    frame = pl.DataFrame(rows, schema=_SCHEMA)
    notes = (*panel.notes, *incomplete_notes(panel), *hidden, note, *_MEANING, drawn)
    return Table(title=title, frame=frame, notes=notes)


def unlisted(pairs: Sequence[Pair]) -> str:
    """Says that there are too many pairs to list, and how to see some."""
    return (
        f"{count_of(len(pairs), 'pair')} of platforms are not listed (over {MAX_LISTED_PAIRS}): "
        "narrow with --source or --target."
    )


def _pair_rows(panel: Panel, measure: Measure, pairs: Sequence[Pair], seed: int) -> list[Row]:
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
            "unlike": _unlike(facts[i], facts[j]),
        }
        | asdict(figure)
        for (i, j), figure, p_adjusted in zip(pairs, figures, adjusted, strict=True)
    ]


def _unlike(source: dict[str, object], target: dict[str, object]) -> str | None:
    """Facts that may differ between platforms but change what the figure means."""
    texts = [
        f"{name}: {source[name]} / {target[name]}"
        for name in EQUAL_INSIDE_PLATFORM
        if source[name] != target[name]
    ]
    return "; ".join(texts) or None

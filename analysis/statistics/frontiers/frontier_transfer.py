"""Does the frontier found on one platform hold on another?"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.known_means import cluster_means, known_mean
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.pair_groups import TIER_NOTE, Level, tier_groups, unlike_facts
from fleetrank.analysis.panel.pairs import Pair
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS, directed_pairs, unlisted
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.frontiers.measured_quality import measured_quality
from fleetrank.analysis.statistics.frontiers.pair_frontiers import (
    DEFAULT_OBJECTIVES,
    FIGURES,
    LANGUAGE_OBJECTIVES,
    MODEL_OBJECTIVES,
    SHAPES,
    Figures,
    Objective,
    make_objectives,
    pair_frontiers,
    parse_objectives,
)
from fleetrank.analysis.stored.cells_table import MIN_REPEATS
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.inputs.workload import IMAGE

_SCHEMA: dict[str, pl.DataType] = {
    "level": pl.String(),
    "source": pl.String(),
    "target": pl.String(),
    "n_models": pl.Int64(),
    "n_pairs": pl.Int64(),
    "n_clusters": pl.Int64(),
    **dict.fromkeys(FIGURES, pl.Float64()),
    "unlike": pl.String(),
    "reason": pl.String(),
}
_MEANING = (
    "Frontier: the models for which no other common model is as good in every objective and "
    "better in one; exact duplicates are both kept. n_source, n_target: number of models on it.",
    "precision: share of the source's frontier that is on the target's; recall: share of the "
    "target's frontier that is on the source's.",
    "chance_precision = size of the target's frontier / n; a frontier is easy to predict if "
    "most models are on it or if models are well separated. flops_*: the frontier with FLOPs "
    "instead of all measured objectives, which needs no device, compared with the target's.",
    "noisy_*: one model dominates another only when its interval of process medians ends before "
    f"the other's begins (from {MIN_REPEATS} repeats on; accuracy and FLOPs count as exact). "
    "These frontiers contain every model that noise does not exclude; the other frontiers use "
    "the medians.",
    "hypervolume_ratio: volume dominated on the target by the source's frontier, divided by the "
    "volume dominated by the target's own, up to the worst value of any common model in each "
    "objective. epsilon_share: the smallest improvement with which the source's frontier "
    "reaches the target's, as a share of each objective's range on the target; epsilon_factor: "
    "the smallest such factor (1 means that it is reached).",
    "No interval: a frontier consists of extremes, and a resample lacks a third of the models, "
    "so its frontier is of another kind.",
    "Accuracy is the published value of the model's card; the measured weights may be different.",
)
_NOTHING_COMMON = "no common model has all objectives"

Row = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFrontiers:
    """Means of the pairs from one tier to another.

    Attributes:
        n_models: fewest common models of a pair; 0 if no pair has any.
        n_pairs: pairs with a common model; `n_clusters`: pairs of device models among them.
        means: of each of `FIGURES`, (n_figures,), inside a cluster first; NaN is undefined.
    """

    source: str
    target: str
    n_models: int
    n_pairs: int
    n_clusters: int
    means: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoResult:
    """How well the frontier of each source predicts that of each target.

    Attributes:
        pairs: columns of the panel, source first.
        n_models: common models, (n_pairs,).
        figures: each of `FIGURES`, (n_pairs,); NaN is undefined.
        tiers: means from tier to tier.
        is_listed: false if the pairs are too many to list; `SHAPES` are then undefined.
        n_measured: measured latencies.
        lacking: values that are missing although a latency was measured, per objective,
            (n_models, n_platforms).
        quality_note: the metric of the objective `quality` and its data; `None` without it.
    """

    objectives: tuple[Objective, ...]
    pairs: tuple[Pair, ...]
    n_models: Floats
    figures: Figures
    tiers: tuple[TierFrontiers, ...]
    is_listed: bool
    n_measured: int
    lacking: tuple[npt.NDArray[np.bool_], ...]
    quality_note: str | None


def compare_frontiers(session: Session, names: tuple[Objective, ...]) -> ParetoResult:
    """Compares the frontiers of all selected pairs in the named objectives.

    Raises:
        NoDataError: fewer than two platforms match the selection.
    """
    panel = session.panel
    quality = measured_quality(session) if Objective.QUALITY in names else None
    unknown = np.full(len(panel.models), np.nan)
    costs = unknown if quality is None else quality.costs
    objectives = make_objectives(panel, session.repeats, names, costs)
    pairs = directed_pairs(panel, session.selection)
    is_listed = len(pairs) <= MAX_LISTED_PAIRS
    n_models, figures = pair_frontiers(objectives, pairs, with_shapes=is_listed)
    is_measured = np.isfinite(panel.latency)
    lacks = is_measured[:, :, None] & np.isnan(objectives.values)
    return ParetoResult(
        objectives=names,
        pairs=tuple(pairs),
        n_models=n_models,
        figures=figures,
        tiers=tuple(_tiers(panel, pairs, n_models, figures)),
        is_listed=is_listed,
        n_measured=int(is_measured.sum()),
        lacking=tuple(lacks[:, :, at] for at in range(len(names))),
        quality_note=None if quality is None else quality.note,
    )


def _tiers(
    panel: Panel, pairs: list[Pair], n_models: Floats, figures: Figures
) -> Iterator[TierFrontiers]:
    stacked = np.array([figures[name] for name in FIGURES])
    position = {pair: at for at, pair in enumerate(pairs)}
    for group in tier_groups(panel, pairs, is_directed=True):
        mine = [position[pair] for pair in group.pairs]
        by_cluster = cluster_means(stacked[:, mine], group.starts)
        used = n_models[mine] > 0
        yield TierFrontiers(
            source=group.source,
            target=group.target,
            n_models=int(n_models[mine][used].min()) if used.any() else 0,
            n_pairs=int(used.sum()),
            n_clusters=int(np.isfinite(by_cluster[0]).sum()),
            means=known_mean(by_cluster, 1),
        )


def pareto(session: Session) -> ParetoResult:
    """How well each source's frontier predicts each target's; made once a session.

    Setting `objectives`: names separated by commas; accuracy,latency by default, of language
    models quality,latency.

    Raises:
        NoDataError: fewer than two platforms match the selection.
    """
    return session.once(_pareto)


def _pareto(session: Session) -> ParetoResult:
    is_language = session.workload != IMAGE
    usual = LANGUAGE_OBJECTIVES if is_language else DEFAULT_OBJECTIVES
    names = parse_objectives(setting(session.selection, "objectives", usual))
    return compare_frontiers(session, names)


def pareto_table(session: Session) -> Table:
    """Means from tier to tier come first, then the pairs; the settings are those of `pareto`."""
    found = pareto(session)
    why_none = _reasons(found)
    rows = [*_tier_rows(found), *(_pair_rows(session.panel, found) if found.is_listed else ())]
    rows = [row | {"reason": _reason(row, why_none)} for row in rows]
    notes = (
        *session.panel.notes,
        f"Objectives: {', '.join(found.objectives)}.",
        *(() if found.quality_note is None else (found.quality_note,)),
        *(() if found.is_listed else (unlisted(found.pairs, session),)),
        *_incomplete(session.panel, found),
    )
    return Table(
        title="Pareto frontiers",
        frame=pl.DataFrame(rows, schema=_SCHEMA),
        notes=notes,
        explanation=(TIER_NOTE, *_MEANING),
    )


def _tier_rows(found: ParetoResult) -> Iterator[Row]:
    for tier in found.tiers:
        yield {
            "level": Level.TIER.value,
            "source": tier.source,
            "target": tier.target,
            "n_models": tier.n_models,
            "n_pairs": tier.n_pairs,
            "n_clusters": tier.n_clusters,
        } | _known(tier.means)


def _pair_rows(panel: Panel, found: ParetoResult) -> Iterator[Row]:
    stacked = np.array([found.figures[name] for name in FIGURES])
    facts = panel.platforms.to_dicts()
    for at, (i, j) in enumerate(found.pairs):
        yield {
            "level": Level.PAIR.value,
            "unlike": unlike_facts(facts[i], facts[j]),
            "source": panel.keys[i],
            "target": panel.keys[j],
            "n_models": int(found.n_models[at]),
        } | _known(stacked[:, at])


def _known(values: Floats) -> Row:
    return {
        name: None if math.isnan(value) else value
        for name, value in zip(FIGURES, values.tolist(), strict=True)
    }


def _reasons(found: ParetoResult) -> dict[str, str]:
    """Reasons for undefined figures, by the last figure of each kind."""
    few = f"no noisy_*: fewer than {MIN_REPEATS} repeats of a common model"
    unknown = "no noisy_*: the noise of energy is not known"
    volume = "no hypervolume_ratio: the target's frontier is not better than the worst values"
    unlisted_shapes = "hypervolume_ratio, epsilon_*: computed only if pairs are listed"
    factor = "no epsilon_factor: an accuracy of 0"
    return {
        "flops_f1": "no FLOPs baseline: a common model has no FLOPs",
        "noisy_f1": unknown if Objective.ENERGY in found.objectives else few,
        SHAPES[0]: volume if found.is_listed else unlisted_shapes,
        SHAPES[2]: factor if found.is_listed else unlisted_shapes,
    }


def _reason(row: Row, why_none: dict[str, str]) -> str | None:
    if row["precision"] is None:
        return _NOTHING_COMMON
    texts = dict.fromkeys(text for name, text in why_none.items() if row[name] is None)
    return "; ".join(texts) or None


def _incomplete(panel: Panel, found: ParetoResult) -> tuple[str, ...]:
    """Notes on models and values that are left out, and on what they lack."""
    notes = []
    for name, lacks in zip(found.objectives, found.lacking, strict=True):
        if name in MODEL_OBJECTIVES and lacks.any():
            models = (panel.models[row] for row in np.flatnonzero(lacks.any(axis=1)))
            notes.append(f"Dropped, no {name}: {', '.join(models)}.")
        elif lacks.any():
            notes.append(
                f"Dropped: {int(lacks.sum())} of {found.n_measured} values without {name} above 0."
            )
    return tuple(notes)

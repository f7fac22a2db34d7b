"""Does the frontier found on one platform hold on another?"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.known_means import cluster_means, known_mean
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.pair_groups import TIER_NOTE, tier_groups, unlike_facts
from fleetrank.analysis.panel.pairs import Pair
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.repeats import Repeats
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS, directed_pairs, unlisted
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.frontiers.objectives import (
    DEFAULT_OBJECTIVES,
    Objective,
    by_flops,
    noise_bounds,
    parse_objectives,
    points,
)
from fleetrank.analysis.statistics.frontiers.pair_frontiers import (
    FIGURES,
    SHAPES,
    Figures,
    Objectives,
    pair_frontiers,
)
from fleetrank.analysis.stored.cells_table import MIN_REPEATS
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.tables.table import Table

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


def pareto_table(session: Session) -> Table:
    """How well each source's frontier predicts each target's, and means from tier to tier.

    Setting `objectives`: names separated by commas, accuracy,latency by default.
    """
    names = parse_objectives(setting(session.selection, "objectives", DEFAULT_OBJECTIVES))
    panel, repeats, selection = session.panel, session.repeats, session.selection
    pairs = directed_pairs(panel, selection)
    is_listed = len(pairs) <= MAX_LISTED_PAIRS
    objectives = _objectives(panel, repeats, names)
    n_models, figures = pair_frontiers(objectives, pairs, with_shapes=is_listed)
    rows = list(_tier_rows(panel, pairs, n_models, figures))
    if is_listed:
        rows += _pair_rows(panel, pairs, n_models, figures)
    why_none = _reasons(names, is_listed=is_listed)
    rows = [row | {"reason": _reason(row, why_none)} for row in rows]
    notes = (
        *panel.notes,
        f"Objectives: {', '.join(names)}.",
        *(() if is_listed else (unlisted(pairs),)),
        *_incomplete(panel, names, objectives.values),
        TIER_NOTE,
        *_MEANING,
    )
    return Table(title="Pareto frontiers", frame=pl.DataFrame(rows, schema=_SCHEMA), notes=notes)


def _objectives(panel: Panel, repeats: Repeats, names: tuple[Objective, ...]) -> Objectives:
    return Objectives(
        values=points(panel, names),
        bounds=noise_bounds(panel, repeats, names),
        flops=points(panel, by_flops(names))[:, 0],
    )


def _tier_rows(
    panel: Panel, pairs: Sequence[Pair], n_models: Floats, figures: Figures
) -> Iterator[Row]:
    stacked = np.array([figures[name] for name in FIGURES])
    position = {pair: at for at, pair in enumerate(pairs)}
    for group in tier_groups(panel, pairs, is_directed=True):
        mine = [position[pair] for pair in group.pairs]
        by_cluster = cluster_means(stacked[:, mine], group.starts)
        used = n_models[mine] > 0
        yield {
            "level": "tier",
            "source": group.source,
            "target": group.target,
            "n_models": int(n_models[mine][used].min()) if used.any() else 0,
            "n_pairs": int(used.sum()),
            "n_clusters": int(np.isfinite(by_cluster[0]).sum()),
        } | _known(known_mean(by_cluster, 1))


def _pair_rows(
    panel: Panel, pairs: Sequence[Pair], n_models: Floats, figures: Figures
) -> Iterator[Row]:
    stacked = np.array([figures[name] for name in FIGURES])
    facts = panel.platforms.to_dicts()
    for at, (i, j) in enumerate(pairs):
        yield {
            "level": "pair",
            "unlike": unlike_facts(facts[i], facts[j]),
            "source": panel.keys[i],
            "target": panel.keys[j],
            "n_models": int(n_models[at]),
        } | _known(stacked[:, at])


def _known(values: Floats) -> Row:
    return {
        name: None if math.isnan(value) else value
        for name, value in zip(FIGURES, values.tolist(), strict=True)
    }


def _reasons(names: tuple[Objective, ...], *, is_listed: bool) -> dict[str, str]:
    """Reasons for undefined figures, by the last figure of each kind."""
    few = f"no noisy_*: fewer than {MIN_REPEATS} repeats of a common model"
    unknown = "no noisy_*: the noise of energy is not known"
    volume = "no hypervolume_ratio: the target's frontier is not better than the worst values"
    unlisted_shapes = "hypervolume_ratio, epsilon_*: computed only if pairs are listed"
    return {
        "flops_f1": "no FLOPs baseline: a common model has no FLOPs",
        "noisy_f1": unknown if Objective.ENERGY in names else few,
        SHAPES[0]: volume if is_listed else unlisted_shapes,
        SHAPES[2]: "no epsilon_factor: an accuracy of 0" if is_listed else unlisted_shapes,
    }


def _reason(row: Row, why_none: dict[str, str]) -> str | None:
    if row["precision"] is None:
        return _NOTHING_COMMON
    texts = dict.fromkeys(text for name, text in why_none.items() if row[name] is None)
    return "; ".join(texts) or None


def _incomplete(panel: Panel, names: tuple[Objective, ...], values: Floats) -> tuple[str, ...]:
    """Notes on models and values that are left out, and on what they lack."""
    measured = np.isfinite(panel.latency)
    notes = []
    for at, name in enumerate(names):
        lacks = measured & np.isnan(values[:, :, at])
        if name in {Objective.ACCURACY, Objective.FLOPS} and lacks.any():
            models = (panel.models[row] for row in np.flatnonzero(lacks.any(axis=1)))
            notes.append(f"Dropped, no {name}: {', '.join(models)}.")
        elif lacks.any():
            notes.append(
                f"Dropped: {int(lacks.sum())} of {int(measured.sum())} values without {name} "
                "above 0."
            )
    return tuple(notes)

"""Does the frontier found on one platform hold on another?"""

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.bootstrap import (
    MIN_MODELS_FOR_INTERVAL,
    least_in_mean,
    percentile_interval,
)
from fleetrank.analysis.arrays.known_means import cluster_means, cluster_weights, known_mean
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.conditions import (
    MAX_LISTED_PAIRS,
    Between,
    Level,
    Pair,
    PairCounts,
    PairGroup,
    directed_pairs,
    tier_groups,
    unlike_facts,
    unlisted,
)
from fleetrank.analysis.panel.draws import draws_for
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.session import Session, once_a_session
from fleetrank.analysis.statistics.frontiers.frontier_intervals import resampled_overlaps
from fleetrank.analysis.statistics.frontiers.measured_quality import measured_quality
from fleetrank.analysis.statistics.frontiers.pair_frontiers import (
    DEFAULT_OBJECTIVES,
    FIGURES,
    LANGUAGE_OBJECTIVES,
    MODEL_OBJECTIVES,
    SHAPES,
    Figures,
    FrontierFigures,
    Objective,
    make_objectives,
    pair_frontiers,
    parse_objectives,
)
from fleetrank.analysis.stored.cell_values import MIN_REPEATS
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.wording import count_of
from fleetrank.foundation.workload import IMAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapIntervals:
    """95 % percentile bootstrap over models; `None` where every resample gives the same share."""

    precision_low: float | None = None
    precision_high: float | None = None
    recall_low: float | None = None
    recall_high: float | None = None
    f1_low: float | None = None
    f1_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierRow(Between):
    """How well the frontier of one platform, or of those of a tier, predicts that of another.

    Attributes:
        level: `TIER` or `PAIR`.
        n_models: common models; of tiers the fewest of a pair in the mean.
        counts: pairs in the mean; `None` for a single pair.
        figures: of tiers means, inside a cluster first.
        intervals: of tiers only, from 9 models on.
        reason: why a figure is undefined, or which pairs are left out.
    """

    n_models: int
    counts: PairCounts | None = None
    figures: FrontierFigures
    intervals: OverlapIntervals | None = None
    unlike: str | None = None
    reason: str | None = None


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
    tiers: tuple[FrontierRow, ...]
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
    objectives = make_objectives(session, names, costs)
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
        tiers=tuple(_tiers(session, objectives.values, pairs, n_models, figures)),
        is_listed=is_listed,
        n_measured=int(is_measured.sum()),
        lacking=tuple(lacks[:, :, at] for at in range(len(names))),
        quality_note=None if quality is None else quality.note,
    )


def _tiers(
    session: Session, values: Floats, pairs: list[Pair], n_models: Floats, figures: Figures
) -> Iterator[FrontierRow]:
    stacked = np.array([figures[name] for name in FIGURES])
    position = {pair: at for at, pair in enumerate(pairs)}
    for group in tier_groups(session.panel, pairs, is_directed=True):
        mine = np.array([position[pair] for pair in group.pairs])
        n_common = n_models[mine].astype(np.int64)
        least = least_in_mean(n_common)
        is_used = n_common >= least
        by_cluster = cluster_means(np.where(is_used, stacked[:, mine], np.nan), group.starts)
        row = FrontierRow(
            level=Level.TIER,
            source=group.source,
            target=group.target,
            n_models=int((n_common[is_used] if is_used.any() else n_common).min()),
            counts=PairCounts(
                n_pairs=int(is_used.sum()), n_clusters=int(np.isfinite(by_cluster[0]).sum())
            ),
            figures=FrontierFigures(*known_mean(by_cluster, 1).tolist()),
            reason=_few(n_common, least),
        )
        if is_used.any() and row.n_models >= MIN_MODELS_FOR_INTERVAL:
            row = replace(row, intervals=_intervals(session, values, group, is_used))
        yield row


def _few(n_common: npt.NDArray[np.int64], least: int) -> str | None:
    n_out, most = int((n_common < least).sum()), int(n_common.max())
    if n_out == n_common.size:
        return f"{count_of(most, 'model')} in common, at least {least} needed" if most else None
    return f"left out: {count_of(n_out, 'pair')} with fewer than {least} models" if n_out else None


def _intervals(
    session: Session, values: Floats, group: PairGroup, is_used: npt.NDArray[np.bool_]
) -> OverlapIntervals:
    """Of mean precision, recall and F1 over the pairs used."""
    pairs = [pair for pair, used in zip(group.pairs, is_used, strict=True) if used]
    weights, _, _ = cluster_weights(np.zeros(len(pairs)), group.clusters[is_used])
    name = zlib.crc32(f"frontier/{group.source}/{group.target}".encode())
    rng = np.random.default_rng([session.selection.seed, name])
    draws = draws_for(pairs, len(session.panel.models)).bootstrap
    low, high = percentile_interval(resampled_overlaps(values, pairs, weights, draws, rng).T)
    ends = zip(("precision", "recall", "f1"), low.tolist(), high.tolist(), strict=True)
    return OverlapIntervals(
        **{
            f"{name}_{end}": value
            for name, *both in ends
            if both[0] < both[1]
            for end, value in zip(("low", "high"), both, strict=True)
        }
    )


@once_a_session
def pareto(session: Session) -> ParetoResult:
    """How well each source's frontier predicts each target's; made once a session.

    Setting `objectives`: names separated by commas; accuracy,latency by default, of language
    models quality,latency.

    Raises:
        NoDataError: fewer than two platforms match the selection.
    """
    is_language = session.workload != IMAGE
    usual = LANGUAGE_OBJECTIVES if is_language else DEFAULT_OBJECTIVES
    return compare_frontiers(
        session, parse_objectives(setting(session.selection, "objectives", usual))
    )


def pareto_table(session: Session) -> Table:
    """Means from tier to tier come first, then the pairs; the settings are those of `pareto`."""
    panel, found = session.panel, pareto(session)
    why_none = _reasons(found)
    rows = [*found.tiers, *(_pairs(panel, found) if found.is_listed else ())]
    return Table.of(
        FrontierRow,
        (replace(row, reason=_reason(row, why_none)) for row in rows),
        title="Pareto frontiers",
        notes=(
            *panel.notes,
            f"Objectives: {', '.join(found.objectives)}.",
            *(() if found.quality_note is None else (found.quality_note,)),
            *(() if found.is_listed else (unlisted(found.pairs, session),)),
            *_incomplete(panel, found),
        ),
        explanation=explained("frontier/pareto", {"min_repeats": MIN_REPEATS}),
    )


def _pairs(panel: Panel, found: ParetoResult) -> Iterator[FrontierRow]:
    stacked = np.array([found.figures[name] for name in FIGURES])
    facts = panel.platforms.to_dicts()
    for at, (i, j) in enumerate(found.pairs):
        yield FrontierRow(
            level=Level.PAIR,
            source=panel.keys[i],
            target=panel.keys[j],
            n_models=int(found.n_models[at]),
            figures=FrontierFigures(*stacked[:, at].tolist()),
            unlike=unlike_facts(facts[i], facts[j]),
        )


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


def _reason(row: FrontierRow, why_none: dict[str, str]) -> str | None:
    if math.isnan(row.figures.precision):
        return row.reason or "no common model has all objectives"
    texts = [text for name, text in why_none.items() if math.isnan(getattr(row.figures, name))]
    if row.level is Level.TIER and (row.intervals is None or row.intervals.precision_low is None):
        texts.append(
            f"no interval: {count_of(row.n_models, 'model')}, at least "
            f"{MIN_MODELS_FOR_INTERVAL} needed"
            if row.n_models < MIN_MODELS_FOR_INTERVAL
            else "no interval of a share that is the same in every resample"
        )
    return "; ".join(dict.fromkeys([*([row.reason] if row.reason else []), *texts])) or None


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

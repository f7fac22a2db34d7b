"""Does the frontier found on one platform hold on another?"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.bootstrap import cluster_means, known_mean
from fleetrank.analysis.arrays.pareto import (
    Mask,
    additive_epsilon,
    frontier,
    hypervolume,
    noisy_frontier,
    overlaps,
)
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.conditions import (
    MAX_LISTED_PAIRS,
    Between,
    Level,
    Pair,
    PairCounts,
    directed_pairs,
    tier_groups,
    unlike_facts,
    unlisted,
)
from fleetrank.analysis.panel.draws import Block, blocks
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.session import Session, once_a_session
from fleetrank.analysis.statistics.process_noise import noise_of
from fleetrank.analysis.stored.cell_values import MIN_REPEATS
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.stored.side_tables import EVALUATIONS, LOWER_IS_BETTER, of_most_models
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.errors import count_of, did_you_mean
from fleetrank.foundation.inputs import IMAGE

# The objective `quality`: what evaluations of the models found, in one metric on the same data.

_OF_TOKENIZER = ("perplexity", "token_top1", "token_top5")
"""Figures per token: another tokenizer makes other tokens of the same text."""
_SAME = ("task", "data_sha256", "strategy", "prompts", "item_limit", "tokens_of", "quality_metric")
_NOTHING = "No model has a measured quality: run `fleetrank eval` with trained weights."


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """One figure for each model.

    Attributes:
        costs: (n_models,), smaller is better; NaN is not measured.
        note: which metric and data, or why a figure is missing.
    """

    costs: Floats
    note: str


def measured_quality(session: Session) -> Quality:
    """The quality of the panel's models in the metric and on the data that most of them share.

    Models are compared in one metric, task, text, strategy and set of prompts only; figures per
    token also with one tokenizer only. The newest evaluation of a model counts. Evaluations of
    seeded weights do not count: they show chance. Of two metrics with as many models, the one with
    the newest evaluation is used.
    """
    panel = session.panel
    # From the panel's name of a model to the name of its card.
    cells = session.comparable.cells.select("identity", "model").unique()
    names: dict[str, str] = dict(cells.iter_rows())
    known = _comparable(session.side(EVALUATIONS), list(names.values()))
    if known.is_empty():
        return Quality(costs=np.full(len(panel.models), np.nan), note=_NOTHING)
    used = of_most_models(known, _SAME)
    return Quality(costs=_costs(panel, names, used), note=_note(used))


def _comparable(rows: pl.DataFrame, models: Sequence[str]) -> pl.DataFrame:
    per_token = pl.col("quality_metric").is_in(_OF_TOKENIZER)
    is_seeded = pl.col("flags").list.contains("seeded").fill_null(value=False)
    return rows.filter(
        pl.col("model").is_in(models), pl.col("quality").is_not_null(), ~is_seeded
    ).with_columns(pl.when(per_token).then("tokenizer_sha256").alias("tokens_of"))


def _costs(panel: Panel, names: dict[str, str], used: pl.DataFrame) -> Floats:
    is_lower_better = used["quality_metric"][0] in LOWER_IS_BETTER
    found = dict(used.select("model", "quality").iter_rows())
    values = np.array([found.get(names[one], np.nan) for one in panel.models], dtype=np.float64)
    return values if is_lower_better else -values


def _note(used: pl.DataFrame) -> str:
    metric, task = used["quality_metric"][0], used["task"][0]
    best = "smallest" if metric in LOWER_IS_BETTER else "largest"
    data = used["data"].drop_nulls().unique().sort().to_list()
    of = f" on {', '.join(data)}" if data else ""
    return (
        f"Quality is {metric} of {task}{of}, the {best} is the best; "
        f"{count_of(used.height, 'model')} have it."
    )


# Frontiers of platforms in chosen objectives, compared pair by pair on the models both have.


class Objective(StrEnum):
    """Accuracy is better when larger, quality as its metric says, all others when smaller."""

    ACCURACY = "accuracy"
    QUALITY = "quality"
    LATENCY = "latency"
    MEMORY = "memory"
    ENERGY = "energy"
    FLOPS = "flops"


DEFAULT_OBJECTIVES = "accuracy,latency"
LANGUAGE_OBJECTIVES = "quality,latency"
"""The default of language models, which have no accuracy on images."""
_PROCESSES = {Objective.LATENCY: "latency_p50_ns", Objective.MEMORY: "peak_memory_bytes"}
"""In the order of `Repeats.processes`."""
MODEL_OBJECTIVES = (Objective.ACCURACY, Objective.QUALITY, Objective.FLOPS)
"""These have no noise on a platform: they are properties of the model."""
SHAPES = ("hypervolume_ratio", "epsilon_share", "epsilon_factor")


@dataclass(frozen=True, slots=True)
class FrontierFigures:
    """Of one source and target; NaN is undefined."""

    n_source: float
    n_target: float
    precision: float
    recall: float
    f1: float
    jaccard: float
    chance_precision: float
    flops_precision: float
    flops_recall: float
    flops_f1: float
    noisy_n_source: float
    noisy_n_target: float
    noisy_precision: float
    noisy_recall: float
    noisy_f1: float
    hypervolume_ratio: float
    epsilon_share: float
    epsilon_factor: float


FIGURES = tuple(one.name for one in fields(FrontierFigures))
_OVERLAPS, _FLOPS, _NOISY = FIGURES[:7], FIGURES[7:10], FIGURES[10:15]
Figures = Mapping[str, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """The objectives of the frontiers; smaller is better, NaN is missing.

    Attributes:
        values: (n_models, n_platforms, n_objectives).
        bounds: lower and upper ends of `values` within noise, NaN where not known.
        flops: objectives that need no device, (n_models, n_of_these).
    """

    values: Floats
    bounds: tuple[Floats, Floats]
    flops: Floats


def parse_objectives(text: str) -> tuple[Objective, ...]:
    """Two or more names, separated by commas.

    Raises:
        AnalysisError: a name is unknown or given twice, or there is only one.
    """
    names = [name.strip() for name in text.split(",")]
    known = ", ".join(Objective)
    for name in names:
        if name not in list(Objective):
            hint = did_you_mean(name, Objective)
            raise AnalysisError(f"no objective '{name}'", f"{hint}there are {known}")
    if len(names) < 2 or len(set(names)) < len(names):
        raise AnalysisError(
            f"'{text}' are not two or more different objectives", f"choose from {known}"
        )
    return tuple(Objective(name) for name in names)


def make_objectives(session: Session, names: tuple[Objective, ...], quality: Floats) -> Objectives:
    """The values of the named objectives with their noise, and of those that need no device.

    `quality` is (n_models,), smaller is better, NaN is not measured.
    """
    panel = session.panel
    points = _points(panel, names, quality)
    return Objectives(
        values=points,
        bounds=_noise_bounds(points, session, names),
        flops=_points(panel, by_flops(names), quality)[:, 0],
    )


def pair_frontiers(
    objectives: Objectives, pairs: Sequence[Pair], *, with_shapes: bool
) -> tuple[Floats, Figures]:
    """Common models (n_pairs,) and each of `FIGURES` (n_pairs,), source first; NaN is undefined.

    Without `with_shapes`, figures that are computed pair by pair are undefined.
    """
    n_models = np.zeros(len(pairs))
    figures = {name: np.full(len(pairs), np.nan) for name in FIGURES}
    present = np.asarray(np.isfinite(objectives.values).all(axis=2))
    for block in blocks(present, pairs):
        n_models[block.where] = block.models.size
        if block.models.size:
            for name, found in _block_figures(objectives, block, with_shapes).items():
                figures[name][block.where] = found
    return n_models, figures


def _block_figures(objectives: Objectives, block: Block, with_shapes: bool) -> dict[str, Floats]:
    values = objectives.values[np.ix_(block.models, block.columns)]
    masks = np.column_stack([frontier(values[:, at]) for at in range(block.columns.size)])
    found = asdict(overlaps(masks, block.source, block.target))
    found |= _against_flops(objectives.flops[block.models], masks, block)
    found |= _within_noise(objectives.bounds, block)
    return found | (_shapes(values, masks, block) if with_shapes else {})


def _against_flops(points: Floats, masks: Mask, block: Block) -> dict[str, Floats]:
    if not np.isfinite(points).all():
        return {}
    both = np.column_stack([masks, frontier(points)])
    baseline = np.full(block.target.size, masks.shape[1])
    found = overlaps(both, baseline, block.target)
    return dict(zip(_FLOPS, (found.precision, found.recall, found.f1), strict=True))


def _within_noise(bounds: tuple[Floats, Floats], block: Block) -> dict[str, Floats]:
    low, high = (end[np.ix_(block.models, block.columns)] for end in bounds)
    known = np.asarray(np.isfinite(low + high).all(axis=(0, 2)))
    masks = np.zeros(low.shape[:2], dtype=np.bool_)
    for at in np.flatnonzero(known):
        masks[:, at] = noisy_frontier(low[:, at], high[:, at])
    both = np.flatnonzero(known[block.source] & known[block.target])
    found = overlaps(masks, block.source[both], block.target[both])
    parts = (found.n_source, found.n_target, found.precision, found.recall, found.f1)
    figures = {name: np.full(block.source.size, np.nan) for name in _NOISY}
    for name, part in zip(_NOISY, parts, strict=True):
        figures[name][both] = part
    return figures


def _shapes(values: Floats, masks: Mask, block: Block) -> dict[str, Floats]:
    """The quality of the source's frontier, by the target's values."""
    found = np.full((len(SHAPES), block.source.size), np.nan)
    for target in np.unique(block.target):
        here = values[:, target]
        worst = here.max(axis=0)
        whole = hypervolume(here, worst)
        spread = np.ptp(here, axis=0)
        scaled = here / np.where(spread > 0, spread, 1.0)
        logs = _logs(here)
        wanted = masks[:, target]
        for at in np.flatnonzero(block.target == target):
            chosen = masks[:, block.source[at]]
            if whole > 0:
                found[0, at] = min(1.0, hypervolume(here[chosen], worst) / whole)
            found[1, at] = additive_epsilon(scaled[chosen], scaled[wanted])
            if logs is not None:
                found[2, at] = np.exp(additive_epsilon(logs[chosen], logs[wanted]))
    return dict(zip(SHAPES, found, strict=True))


def _logs(values: Floats) -> Floats | None:
    """Logarithms in the same order; of a negated value, that of its inverse. `None` with a 0."""
    if (values == 0).any():
        return None
    logs: Floats = np.sign(values) * np.log(np.abs(values))
    return logs


def _points(panel: Panel, objectives: tuple[Objective, ...], quality: Floats) -> Floats:
    """Values where smaller is better, (n_models, n_platforms, n_objectives); NaN is missing.

    Accuracy is negated. A cost of 0 or less is not a measurement and missing.
    """
    return np.stack([_values(panel, one, quality) for one in objectives], axis=2)


def _noise_bounds(
    points: Floats, session: Session, objectives: tuple[Objective, ...]
) -> tuple[Floats, Floats]:
    """Lower and upper bounds of the values within their noise; NaN where it is not known.

    Latency and memory have their intervals over processes, which need 5 repeats; accuracy, quality
    and FLOPs are exact. The noise of energy is never known.
    """
    low, high = points.copy(), points.copy()
    for at, objective in enumerate(objectives):
        if objective in _PROCESSES:
            noise = noise_of(session, _PROCESSES[objective])
            reach = np.where(noise.n >= MIN_REPEATS, noise.reach, np.nan)
            low[:, :, at] *= np.exp(-reach)
            high[:, :, at] *= np.exp(reach)
        elif objective is Objective.ENERGY:
            low[:, :, at] = high[:, :, at] = np.nan
    return low, high


def by_flops(objectives: tuple[Objective, ...]) -> tuple[Objective, ...]:
    """The objectives that need no device: FLOPs replace all measured ones."""
    return tuple(
        dict.fromkeys(one if one in MODEL_OBJECTIVES else Objective.FLOPS for one in objectives)
    )


def _values(panel: Panel, objective: Objective, quality: Floats) -> Floats:
    shape = panel.latency.shape
    if objective is Objective.ACCURACY:
        return np.broadcast_to(-panel.accuracy[:, None], shape)
    if objective is Objective.QUALITY:
        return np.broadcast_to(quality[:, None], shape)
    costs = {
        Objective.LATENCY: panel.latency,
        Objective.MEMORY: panel.memory,
        Objective.ENERGY: panel.energy,
        Objective.FLOPS: np.broadcast_to(panel.flops[:, None], shape),
    }[objective]
    return np.where(costs > 0, costs, np.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierRow(Between):
    """How well the frontier of one platform, or of those of a tier, predicts that of another.

    Attributes:
        level: `TIER` or `PAIR`.
        n_models: common models; of tiers the fewest of a pair, 0 if no pair has any.
        counts: pairs with a common model; `None` for a single pair.
        figures: of tiers means, inside a cluster first.
        reason: why a figure is undefined.
    """

    n_models: int
    counts: PairCounts | None = None
    figures: FrontierFigures
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
        tiers=tuple(_tiers(panel, pairs, n_models, figures)),
        is_listed=is_listed,
        n_measured=int(is_measured.sum()),
        lacking=tuple(lacks[:, :, at] for at in range(len(names))),
        quality_note=None if quality is None else quality.note,
    )


def _tiers(
    panel: Panel, pairs: list[Pair], n_models: Floats, figures: Figures
) -> Iterator[FrontierRow]:
    stacked = np.array([figures[name] for name in FIGURES])
    position = {pair: at for at, pair in enumerate(pairs)}
    for group in tier_groups(panel, pairs, is_directed=True):
        mine = [position[pair] for pair in group.pairs]
        by_cluster = cluster_means(stacked[:, mine], group.starts)
        used = n_models[mine] > 0
        yield FrontierRow(
            level=Level.TIER,
            source=group.source,
            target=group.target,
            n_models=int(n_models[mine][used].min()) if used.any() else 0,
            counts=PairCounts(
                n_pairs=int(used.sum()), n_clusters=int(np.isfinite(by_cluster[0]).sum())
            ),
            figures=FrontierFigures(*known_mean(by_cluster, 1).tolist()),
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
        (replace(row, reason=_reason(row.figures, why_none)) for row in rows),
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


def _reason(row: FrontierFigures, why_none: dict[str, str]) -> str | None:
    if math.isnan(row.precision):
        return "no common model has all objectives"
    texts = dict.fromkeys(text for name, text in why_none.items() if math.isnan(getattr(row, name)))
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

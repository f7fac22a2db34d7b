"""The highest agreement possible, given how repeatable each platform is."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.pareto import frontier, overlap
from fleetrank.analysis.arrays.ranking import MIN_MODELS
from fleetrank.analysis.arrays.sample_size import few_models_note
from fleetrank.analysis.panel.pair_groups import (
    PairGroup,
    Row,
    group_rows,
    pair_rows,
    tier_groups,
    unlike_facts,
)
from fleetrank.analysis.panel.pairs import Block, Pair, blocks
from fleetrank.analysis.panel.panel import Panel, incomplete_notes
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS, select_pairs, unlisted
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.transfer.ceiling import (
    SPLIT,
    FrontierNoise,
    Noise,
    frontier_noise,
    frontier_overlap,
    mean_ceiling,
    noises,
    pair_ceilings,
    platform_interval,
    reliability_of,
    share_of_ceiling,
    why_unreliable,
)
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.wording import count_of

_SCHEMA = {
    "level": pl.String,
    "measure": pl.String,
    "source": pl.String,
    "target": pl.String,
    "n_models": pl.Int64,
    "n_pairs": pl.Int64,
    "figure": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "null_mean": pl.Float64,
    "null_p95": pl.Float64,
    "reliability_source": pl.Float64,
    "reliability_target": pl.Float64,
    "ceiling": pl.Float64,
    "share_of_ceiling": pl.Float64,
    "method": pl.String,
    "unlike": pl.String,
    "reason": pl.String,
}
_FRONTIER = ("frontier_precision", "frontier_recall")
_NO_CEILING = "no ceiling: a side has no reliability over the common models (rows `platform`)"

_MEANING = (
    "figure: rho of a pair or of a tier (as in table `transfer`), precision and recall of "
    "frontiers (as in `pareto`); in rows `platform` the reliability of the platform's own ranking.",
    "reliability: rho between the rankings of random halves of each model's repeats, mean over "
    "splits, extended to all repeats by Spearman-Brown. With too few repeats it is the mean rho "
    "of pairs of sweeps of the platform; differences between versions and days then count as "
    "noise.",
    "ceiling = sqrt(reliability_source x reliability_target), over the models of the pair: the "
    "rho of two platforms with the same true ranking. share_of_ceiling = figure / ceiling; a "
    "share above 1 is sampling error.",
    "Repeats of one session share its temperature, versions and memory layout, so they agree "
    "better than repeats from different days: their ceiling is an upper bound, and the share is "
    "a lower bound.",
    "Frontiers: the process medians of every cell are resampled twice with replacement, and one "
    "frontier is compared with the other; a pair's ceiling is the geometric mean of both "
    "platforms' own, by analogy. With 2 or 3 repeats resampling understates the noise.",
    "FRM is highly repeatable because FLOPs do not vary at all: compare it with its null.",
    "low to high: 95 % percentile bootstrap over models, from 9 on; none for frontiers.",
)


def ceiling_table(session: Session) -> Table:
    """Reliability of each platform, and each transfer figure as a share of what it allows."""
    panel, repeats, selection = session.panel, session.repeats, session.selection
    # One platform has no pair, but it has a reliability.
    pairs = select_pairs(panel, selection) if len(panel.keys) > 1 else []
    columns = sorted({column for pair in pairs for column in pair}) or [0]
    is_listed = len(pairs) <= MAX_LISTED_PAIRS
    listed = pairs if is_listed else []
    groups = tier_groups(panel, pairs)
    rows: list[Row] = []
    for noise in noises(session):
        rows += _platform_rows(panel, noise, columns, selection.seed)
        for group in groups:
            rows += _group_row(noise, group, selection.seed)
        rows += _pair_rows(panel, noise, listed, selection.seed)
    noise_of_frontiers = frontier_noise(panel, repeats, selection.seed)
    rows += _frontier_platforms(panel, noise_of_frontiers, columns)
    rows += _frontier_pairs(panel, noise_of_frontiers, listed)
    notes = (
        *panel.notes,
        *incomplete_notes(panel),
        *(() if is_listed else (unlisted(pairs),)),
        *_MEANING,
        f"Seed {selection.seed}: {noise.halves.shape[3]} splits, 400 resamples of models, "
        f"{noise_of_frontiers.latency.shape[2]} pairs of resampled frontiers.",
        *few_models_note(len(panel.models)),
    )
    order = {"platform": 0, "tier": 1, "pair": 2}
    rows.sort(key=lambda row: order[str(row["level"])])
    return Table(title="Ceilings", frame=pl.DataFrame(rows, schema=_SCHEMA), notes=notes)


def _platform_rows(panel: Panel, noise: Noise, columns: Sequence[int], seed: int) -> Iterator[Row]:
    every = np.arange(len(panel.models))
    for column in columns:
        reliability, method = reliability_of(noise, every, column)
        interval = platform_interval(noise, column, panel.keys[column], seed)
        is_defined = math.isfinite(reliability)
        low, high = interval if interval is not None and method == SPLIT else (None, None)
        yield {
            "level": "platform",
            "measure": noise.measure.name,
            "source": panel.keys[column],
            "n_models": int(np.isfinite(noise.lengthening[:, column]).sum()),
            "figure": _known(reliability),
            "low": low,
            "high": high,
            "method": method,
            "reason": None if is_defined else why_unreliable(noise, column),
        }


def _pair_rows(panel: Panel, noise: Noise, pairs: Sequence[Pair], seed: int) -> Iterator[Row]:
    ceilings = pair_ceilings(noise, pairs)
    for number, row in enumerate(pair_rows(panel, noise.measure, pairs, seed)):
        sides = ceilings.source[number], ceilings.target[number]
        yield _figure(row) | {
            "reliability_source": _known(sides[0]),
            "reliability_target": _known(sides[1]),
            "method": ceilings.methods[number],
        } | _share(row, ceilings.ceiling[number], _NO_CEILING)  # fmt: skip


def _group_row(noise: Noise, group: PairGroup, seed: int) -> Iterator[Row]:
    """A tier's ceiling is the mean of its pairs', weighted as their rho is."""
    (row,) = group_rows(group, [noise.measure], seed)
    ceilings = pair_ceilings(noise, group.pairs)
    mean = mean_ceiling(ceilings, group.clusters)
    lacking = int(np.isnan(ceilings.ceiling[ceilings.has_models]).sum())
    why = f"no ceiling: {lacking} of {int(ceilings.has_models.sum())} pairs have none"
    methods = ", ".join(sorted({method for method in ceilings.methods if method})) or None
    yield _figure(row) | _share(row, mean, why) | {"method": methods}


def _figure(row: Row) -> Row:
    shown = {name: value for name, value in row.items() if name in _SCHEMA}
    return shown | {"figure": row["rho"]}


def _share(row: Row, ceiling: float, without: str) -> Row:
    """The row's figure divided by its ceiling; `without` is the reason if it is missing."""
    rho = None if row["rho"] is None else float(str(row["rho"]))
    known, share = share_of_ceiling(rho, ceiling)
    reasons = [str(row["reason"])] if row["reason"] is not None else []
    if known is None and rho is not None:
        reasons.append(without)
    return {"ceiling": known, "share_of_ceiling": share, "reason": "; ".join(reasons) or None}


def _frontier_platforms(
    panel: Panel, noise: FrontierNoise, columns: Sequence[int]
) -> Iterator[Row]:
    for column in columns:
        models = np.flatnonzero(noise.present[:, column])
        for name, value in zip(_FRONTIER, frontier_overlap(noise, models, column), strict=True):
            yield {
                "level": "platform",
                "measure": name,
                "source": panel.keys[column],
                "n_models": models.size,
                "figure": _known(value),
                "method": None if math.isnan(value) else "resampled repeats",
                "reason": _few(models.size) if math.isnan(value) else None,
            }


def _frontier_pairs(panel: Panel, noise: FrontierNoise, pairs: Sequence[Pair]) -> list[Row]:
    found: list[list[Row]] = [[] for _ in pairs]
    for block in blocks(noise.present, pairs):
        for where, rows in zip(block.where, _frontier_block(panel, noise, block), strict=True):
            found[where] = rows
    return [row for rows in found for row in rows]


def _frontier_block(panel: Panel, noise: FrontierNoise, block: Block) -> Iterator[list[Row]]:
    models = block.models
    own = [frontier_overlap(noise, models, column) for column in block.columns.tolist()]
    masks = [
        frontier(np.column_stack([panel.latency[models, column], -panel.accuracy[models]]))
        for column in block.columns
    ]
    facts = panel.platforms[block.columns.tolist()].to_dicts()
    for i, j in zip(block.source, block.target, strict=True):
        both = overlap(masks[i], masks[j]) if models.size >= MIN_MODELS else None
        figures = (None, None) if both is None else (both.precision, both.recall)
        yield [
            {
                "level": "pair",
                "measure": name,
                "source": panel.keys[block.columns[i]],
                "target": panel.keys[block.columns[j]],
                "n_models": models.size,
                "figure": figure,
                "reliability_source": _known(first),
                "reliability_target": _known(second),
                "ceiling": ceiling,
                "share_of_ceiling": share,
                "method": None if figure is None else "resampled repeats",
                "unlike": unlike_facts(facts[i], facts[j]),
                "reason": None if both else _few(models.size),
            }
            for name, figure, first, second in zip(_FRONTIER, figures, own[i], own[j], strict=True)
            for ceiling, share in [share_of_ceiling(figure, math.sqrt(first * second))]
        ]


def _few(n_models: int) -> str:
    few = count_of(n_models, "model")
    return f"{few} with accuracy and 2 repeats or more, at least {MIN_MODELS} needed"


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)

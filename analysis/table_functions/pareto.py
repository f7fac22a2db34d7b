"""Does the accuracy-latency frontier found on one platform hold on another?"""

from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
import polars as pl

from analysis.pairs import Block, Pair, blocks
from analysis.panel import Panel, make_panel
from analysis.pareto import Mask, frontier, overlap
from analysis.ranking import Floats
from analysis.table_functions.transfer import MAX_LISTED_PAIRS, select_pairs, unlisted
from analysis.tables import Selection, Table

_SCHEMA = {
    "source": pl.String,
    "target": pl.String,
    "n_models": pl.Int64,
    "n_source": pl.Int64,
    "n_target": pl.Int64,
    "precision": pl.Float64,
    "recall": pl.Float64,
    "f1": pl.Float64,
    "jaccard": pl.Float64,
    "chance_precision": pl.Float64,
    "flops_precision": pl.Float64,
    "flops_recall": pl.Float64,
    "flops_f1": pl.Float64,
    "reason": pl.String,
}
_MEANING = (
    "Frontier: no other common model is as accurate and as fast, and better in one; exact "
    "duplicates are both kept.",
    "precision: share of the source's frontier that is on the target's; recall: share of the "
    "target's frontier that is on the source's.",
    "chance_precision = size of the target's frontier / n; a frontier that holds most models, or "
    "well-separated ones, is easy to predict. flops_*: the frontier of accuracy against FLOPs, "
    "which needs no device, against the target's.",
    "The frontiers are those of the medians; measurement noise is not taken into account.",
    "Accuracy is as published for the model's card; weights measured here may be others.",
)


def pareto_table(frame: pl.LazyFrame, selection: Selection) -> Table:
    """Precision, recall, F1 and Jaccard of each source's frontier on each target."""
    panel = make_panel(frame, selection)
    pairs = _both_ways(select_pairs(panel, selection), selection)
    hidden: tuple[str, ...] = ()
    if len(pairs) > MAX_LISTED_PAIRS:
        hidden = (unlisted(pairs),)
        pairs = []
    present = np.isfinite(panel.latency) & np.isfinite(panel.accuracy)[:, None]
    rows: list[dict[str, object]] = [{}] * len(pairs)
    for block in blocks(present, pairs):
        for position, row in zip(block.where, _block_rows(panel, block), strict=True):
            rows[position] = row
    notes = (*panel.notes, *hidden, *_without_accuracy(panel), *_MEANING)
    return Table(title="Pareto frontiers", frame=pl.DataFrame(rows, schema=_SCHEMA), notes=notes)


def _both_ways(pairs: list[Pair], selection: Selection) -> list[Pair]:
    """Precision has a direction; with a source or target named, only that one is asked for."""
    chosen = (
        selection.source, selection.target, selection.source_tier, selection.target_tier
    )  # fmt: skip
    if any(name is not None for name in chosen):
        return pairs
    return sorted([*pairs, *((j, i) for i, j in pairs)])


def _block_rows(panel: Panel, block: Block) -> Iterator[dict[str, object]]:
    accuracy = panel.accuracy[block.models]
    masks = [_frontier(accuracy, panel.latency[block.models, column]) for column in block.columns]
    flops = panel.flops[block.models]
    by_flops = _frontier(accuracy, flops) if np.isfinite(flops).all() else None
    for source, target in zip(block.source, block.target, strict=True):
        keys = panel.keys
        yield {
            "source": keys[block.columns[source]],
            "target": keys[block.columns[target]],
            "n_models": block.models.size,
        } | _figures(masks[source], masks[target], by_flops)


def _figures(source: Mask, target: Mask, by_flops: Mask | None) -> dict[str, object]:
    measured = overlap(source, target)
    if measured is None:
        return {"reason": "no common model with an accuracy"}
    baseline = None if by_flops is None else overlap(by_flops, target)
    figures: dict[str, object] = {
        "n_source": int(source.sum()), "n_target": int(target.sum()), **asdict(measured)
    }  # fmt: skip
    if baseline is None:
        return figures | {"reason": "no FLOPs baseline: a common model has no FLOPs"}
    return figures | {
        "flops_precision": baseline.precision,
        "flops_recall": baseline.recall,
        "flops_f1": baseline.f1,
    }


def _frontier(accuracy: Floats, cost: Floats) -> Mask:
    return frontier(np.column_stack([cost, -accuracy]))


def _without_accuracy(panel: Panel) -> tuple[str, ...]:
    lacking = [
        name for name, value in zip(panel.models, panel.accuracy, strict=True) if np.isnan(value)
    ]
    return (f"Dropped, no accuracy: {', '.join(lacking)}.",) if lacking else ()

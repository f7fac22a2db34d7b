"""The study's decision tree, answered with the user's own figures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from analysis.decision_tree import (
    ATTENTION_FAMILIES,
    CNN_FAMILIES,
    TREE,
    Branch,
    Figure,
    Goal,
    advice,
)
from analysis.directions import Group
from analysis.errors import AnalysisError, NoDataError
from analysis.family_errors import error_intervals, group_errors
from analysis.pair_means import MeanFigures, mean_figures
from analysis.pairs import Pair, draws_for
from analysis.panel import Measure, Panel, make_panel, measures
from analysis.pareto import Mask
from analysis.scope import count_of, select_cells
from analysis.table_functions.directed import directed_pairs, tier_groups
from analysis.table_functions.pareto import pareto_table
from analysis.tables import Selection, Table, setting

_SCHEMA = {
    "goal": pl.String,
    "figure": pl.String,
    "scope": pl.String,
    "advice": pl.String,
    "answer": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "limit": pl.Float64,
    "n_models": pl.Int64,
    "n_pairs": pl.Int64,
    "reason": pl.String,
}
_MEANING = (
    "The tree is the study's (its Figure 5); the figures are those of this selection. Latency "
    "decides, not FRM, which correlates where latency does not transfer (table `decomposition`).",
    "Intervals: 95 % percentile bootstrap over models, from 9 models on. 'Permuted' is the mean "
    "rho of the same latencies in random order. What repeats of one platform give (the ceiling) "
    "is in table `ceiling`.",
    "Tiers: platforms of unlike devices at equal batch, mean inside a pair of device models first.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """A figure with the sentence that says what stands behind it."""

    scope: str
    text: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n_models: int | None = None
    n_pairs: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Data:
    """What all branches draw on; `groups` are directed tiers over `pairs`."""

    frame: pl.LazyFrame
    selection: Selection
    panel: Panel
    pairs: list[Pair]
    groups: list[Group]


def recommend_table(frame: pl.LazyFrame, selection: Selection) -> Table:
    """One row per branch of the tree and per pair of tiers it speaks of.

    Settings: `goal`, one of the five, or its beginning.
    """
    branches = _branches(setting(selection, "goal", ""))
    panel = make_panel(frame, selection)
    try:
        pairs, groups = tier_groups(panel, directed_pairs(panel, selection))
    except NoDataError:
        # One platform answers what asks for no second one.
        pairs, groups = [], []
    data = _Data(frame=frame, selection=selection, panel=panel, pairs=pairs, groups=groups)
    rows = [_row(branch, found) for branch in branches for found in _evidence(branch.figure, data)]
    seed = f"Seed {selection.seed}."
    return Table(
        title="Recommendations",
        frame=pl.DataFrame(rows, schema=_SCHEMA),
        notes=(*panel.notes, *_MEANING, seed),
    )


def _branches(goal: str) -> list[Branch]:
    chosen = [branch for branch in TREE if branch.goal.startswith(goal)]
    if not chosen:
        raise AnalysisError(f"no goal '{goal}'", f"there are {', '.join(Goal)}")
    return chosen


def _row(branch: Branch, found: _Evidence) -> dict[str, object]:
    said = advice(branch, found.value, found.low, found.high)
    return {
        "goal": branch.goal.value,
        "figure": branch.figure.value,
        "scope": found.scope,
        "advice": said,
        "answer": f"{found.text}: {said}.",
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "limit": branch.limit,
        "n_models": found.n_models,
        "n_pairs": found.n_pairs,
        "reason": found.reason,
    }


def _evidence(figure: Figure, data: _Data) -> Iterator[_Evidence]:
    if figure is Figure.FLOPS_RHO:
        yield _flops(data)
    elif figure is Figure.TAIL:
        yield _tail(data)
    elif figure is Figure.FRONTIER:
        yield _frontier(data)
    elif not (groups := list(_groups(figure, data))):
        reason = "no two devices of such tiers were measured at equal batch"
        yield _Evidence(scope="-", text=f"Not known here, {reason}", reason=reason)
    elif figure is Figure.ATTENTION_ERROR:
        yield from (_errors(data, group) for group in groups)
    else:
        is_cnn_only = figure is Figure.CNN_RHO
        yield from (_rho(data, group, is_cnn_only=is_cnn_only) for group in groups)


def _groups(figure: Figure, data: _Data) -> Iterator[Group]:
    """Tiers a figure speaks of; rho has no direction, so that one of two is enough."""
    seen: set[tuple[str, str]] = set()
    for group in data.groups:
        is_inside = group.source == group.target
        is_known = (group.target, group.source) in seen
        seen.add((group.source, group.target))
        if figure is Figure.ATTENTION_ERROR:
            yield group
        elif is_inside:
            if figure is not Figure.BETWEEN_TIERS_RHO:
                yield group
        elif figure is not Figure.WITHIN_TIER_RHO and not is_known:
            yield group


def _flops(data: _Data) -> _Evidence:
    """FLOPs stand in as one more platform, which every platform is compared with."""
    latency = measures(data.panel)[0].latency
    flops = np.where(data.panel.flops > 0, data.panel.flops, np.nan)[:, None]
    both = np.hstack([flops, latency])
    measure = Measure(name="latency", rest=np.ones_like(both), latency=both)
    pairs = [(0, column + 1) for column in range(latency.shape[1])]
    clusters = [str(name) for name in data.panel.platforms["device_model"]]
    found = mean_figures(measure, pairs, clusters, data.selection.seed)
    what = f"FLOPs rank {count_of(found.n_models, 'model')}"
    where = f"on {count_of(found.n_pairs, 'platform')}"
    return _of_mean(found, "all platforms", what, where)


def _rho(data: _Data, group: Group, *, is_cnn_only: bool) -> _Evidence:
    latency = measures(data.panel)[0]
    kept = _in_families(data.panel, CNN_FAMILIES) if is_cnn_only else None
    if kept is not None:
        latency = replace(latency, latency=np.where(kept[:, None], latency.latency, np.nan))
    pairs = [data.pairs[at] for at in group.at]
    numbers = np.searchsorted(group.starts, np.arange(group.at.size), side="right")
    found = mean_figures(latency, pairs, [str(one) for one in numbers], data.selection.seed)
    scope = f"{group.source} -> {group.target}"
    name = "CNN rankings" if is_cnn_only else "Latency rankings"
    what = f"{name} ({count_of(found.n_models, 'model')}) transfer from {_arrow(group)}"
    return _of_mean(
        found, scope, what, f"over {count_of(found.n_clusters, 'pair')} of device models"
    )


def _of_mean(found: MeanFigures, scope: str, what: str, where: str) -> _Evidence:
    if found.rho is None:
        text = f"{what}, too few for a rho on any pair"
        return _Evidence(scope=scope, text=text, n_models=found.n_models, reason=found.reason)
    interval = "" if found.low is None else f" [{found.low:.2f}, {found.high:.2f}]"
    return _Evidence(
        scope=scope,
        text=f"{what} with rho {found.rho:.2f}{interval} {where} (permuted {found.null_mean:.2f})",
        value=found.rho,
        low=found.low,
        high=found.high,
        n_models=found.n_models,
        n_pairs=found.n_pairs,
        reason=found.reason,
    )


def _errors(data: _Data, group: Group) -> _Evidence:
    """Leave-one-out error of transformers and hybrids, predicted from all models."""
    families = {"attention": _in_families(data.panel, ATTENTION_FAMILIES)}
    families["others"] = ~families["attention"]
    logs = measures(data.panel)[0].values
    found = group_errors(logs, data.pairs, group, families)
    rng = np.random.default_rng(data.selection.seed)
    interval = error_intervals(found.by_model, families, draws_for(data.pairs).bootstrap, rng)[0]
    n_models = int(found.figures.n_models[0])
    scope = f"{group.source} -> {group.target}"
    mean = float(found.figures.mean[0])
    what = f"From {_arrow(group)}, the {n_models} transformer and hybrid models"
    if np.isnan(mean):
        reason = "none of them could be left out of a fit over 5 models"
        return _Evidence(scope=scope, text=f"{what} have no error", n_models=0, reason=reason)
    rho = float(found.figures.rho[0])
    agreement = " are too few for a rho;" if np.isnan(rho) else f" have rho {rho:.2f};"
    width = "" if interval is None else f" [{100 * interval[0]:.0f}, {100 * interval[1]:.0f}]"
    return _Evidence(
        scope=scope,
        text=f"{what}{agreement} their leave-one-out error is {100 * mean:.0f} %{width}",
        value=mean,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        n_models=n_models,
        n_pairs=found.n_pairs,
        reason=None if interval else "no interval below 9 models",
    )


def _tail(data: _Data) -> _Evidence:
    cells = select_cells(data.frame, data.selection).cells
    ratio = pl.col("latency_p99_ns") / pl.col("latency_ns")
    known = cells.filter(pl.col("latency_ns") > 0).with_columns(ratio.alias("tail"))
    known = known.drop_nulls("tail").sort("tail", "platform_key", "model")
    if known.is_empty():
        reason = "no p99 was measured"
        return _Evidence(scope="all platforms", text="p99 is not known here", reason=reason)
    worst = known.row(-1, named=True)
    middle = float(known.select(pl.col("tail").median()).item())
    return _Evidence(
        scope="all platforms",
        text=f"p99 is {middle:.2f} times p50 on the median of {count_of(known.height, 'cell')} and "
        f"{worst['tail']:.2f} times for {worst['model']} on {worst['platform_key']}",
        value=middle,
        n_models=known["model"].n_unique(),
        reason="no interval: a median over cells of unlike models",
    )


def _frontier(data: _Data) -> _Evidence:
    try:
        shown = pareto_table(data.frame, data.selection).frame
        rows = shown.filter(pl.col("level") == "pair").drop_nulls("precision")
    except NoDataError as error:
        text = "Frontiers are not known here"
        return _Evidence(scope="all pairs", text=text, reason=error.message)
    if rows.is_empty():
        text, reason = "Frontiers are not known here", "no common model with an accuracy"
        return _Evidence(scope="all pairs", text=text, reason=reason)
    means = {
        name: float(rows.select(pl.col(name).mean()).item())
        for name in ("precision", "recall", "chance_precision")
    }
    flops = rows.select(pl.col("flops_precision").mean()).item()
    by_flops = "" if flops is None else f", by FLOPs {flops:.2f}"
    return _Evidence(
        scope="all pairs",
        text=f"The frontier of one platform has precision {means['precision']:.2f} and recall "
        f"{means['recall']:.2f} on another, mean of {count_of(rows.height, 'pair')} (chance "
        f"{means['chance_precision']:.2f}{by_flops})",
        value=means["precision"],
        n_models=int(rows.select(pl.col("n_models").min()).item()),
        n_pairs=rows.height,
        reason="no interval: a mean over pairs",
    )


def _in_families(panel: Panel, families: Sequence[str]) -> Mask:
    return np.array([family in families for family in panel.families], dtype=np.bool_)


def _arrow(group: Group) -> str:
    return f"{group.source} to {group.target}"

"""The user's own figures for each branch of the decision tree, as sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.pareto import Mask
from fleetrank.analysis.arrays.ranking import MIN_MODELS
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.agreement import Agreement, mean_figures, mean_of_listed
from fleetrank.analysis.panel.conditions import (
    MAX_LISTED_PAIRS,
    Pair,
    PairGroup,
    directed_pairs,
    tier_groups,
)
from fleetrank.analysis.panel.draws import draws_for
from fleetrank.analysis.panel.panel import Measure, Panel, measures
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.choices.decision_tree import (
    ATTENTION_FAMILIES,
    CNN_FAMILIES,
    Figure,
    Goal,
)
from fleetrank.analysis.statistics.frontiers.frontier_transfer import compare_frontiers
from fleetrank.analysis.statistics.frontiers.pair_frontiers import (
    DEFAULT_OBJECTIVES,
    parse_objectives,
)
from fleetrank.analysis.statistics.prediction.predictability import error_intervals, group_errors
from fleetrank.analysis.statistics.transfer.rank_reliability import (
    Noise,
    mean_ceiling,
    noises,
    pair_ceilings,
)
from fleetrank.foundation.wording import count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchAnswer:
    """The user's own figure for a branch, and a sentence that explains it.

    Attributes:
        goal, figure, limit, advice: of the branch; `None` until it is known which one asks.
        scope: the tiers or platforms that it is about.
        value: `None` if it is unknown, for the `reason`.
        low, high: ends of its 95 % interval over models.
        ceiling: the highest rho that the noise of repeats allows.
    """

    goal: Goal | None = None
    figure: Figure | None = None
    scope: str
    advice: str | None = None
    answer: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    ceiling: float | None = None
    n_models: int | None = None
    n_pairs: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchData:
    """The data that all branches use.

    Attributes:
        groups: directed tiers over `pairs`.
        noise: of latency, for ceilings; `None` where the pairs are too many.
    """

    session: Session
    pairs: list[Pair]
    groups: list[PairGroup]
    noise: Noise | None


def make_known(session: Session) -> BranchData:
    """Arrays of the selection.

    Raises:
        NoDataError: no row matches the selection.
    """
    panel = session.panel
    try:
        groups = tier_groups(panel, directed_pairs(panel, session.selection), is_directed=True)
    except NoDataError:
        # With one platform, branches that need only one are still answered.
        groups = []
    pairs = [pair for group in groups for pair in group.pairs]
    is_small = len(pairs) <= MAX_LISTED_PAIRS
    noise = noises(session)[0] if is_small else None
    return BranchData(session=session, pairs=pairs, groups=groups, noise=noise)


def answers_of(figure: Figure, data: BranchData) -> Iterator[BranchAnswer]:
    """The figure for each pair of tiers; an unknown figure has its reason."""
    if figure is Figure.FLOPS_RHO:
        yield _flops(data)
    elif figure is Figure.TAIL:
        yield _tail(data)
    elif figure is Figure.FRONTIER:
        yield _frontier(data)
    elif not (groups := list(_groups(figure, data))):
        reason = "no two devices of these tiers were measured at equal batch"
        yield BranchAnswer(scope="-", answer=f"Unknown here, {reason}", reason=reason)
    elif figure is Figure.ATTENTION_ERROR:
        yield from (_errors(data, group) for group in groups)
    else:
        is_cnn_only = figure is Figure.CNN_RHO
        yield from (_rho(data, group, is_cnn_only=is_cnn_only) for group in groups)


def _groups(figure: Figure, data: BranchData) -> Iterator[PairGroup]:
    """The pairs of tiers of a figure; rho has no direction, so one of two is enough."""
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


def _flops(data: BranchData) -> BranchAnswer:
    """FLOPs are added as one more platform, and every platform is compared with it."""
    latency = measures(data.session.panel)[0].latency
    flops = np.where(data.session.panel.flops > 0, data.session.panel.flops, np.nan)[:, None]
    both = np.hstack([flops, latency])
    measure = Measure(name="latency", rest=np.ones_like(both), latency=both)
    pairs = [(0, column + 1) for column in range(latency.shape[1])]
    clusters = [str(name) for name in data.session.panel.platforms["device_model"]]
    found = mean_figures(measure, pairs, clusters, data.session.selection.seed)
    what = f"FLOPs rank {found.models_text}"
    where = f"on {count_of(found.averaged.n_pairs or 0, 'platform')}"
    return _of_mean(found, "all platforms", what, where)


def _rho(data: BranchData, group: PairGroup, *, is_cnn_only: bool) -> BranchAnswer:
    latency = measures(data.session.panel)[0]
    pairs, clusters = _unordered(group)
    if is_cnn_only:
        kept = _in_families(data.session.panel, CNN_FAMILIES)
        latency = replace(latency, latency=np.where(kept[:, None], latency.latency, np.nan))
    is_alone = is_cnn_only or data.noise is None
    found = None if is_alone else mean_of_listed(data.session, pairs, clusters)
    if found is None:
        found = mean_figures(latency, pairs, clusters, data.session.selection.seed)
    name = "CNN rankings" if is_cnn_only else "Latency rankings"
    what = f"{name} ({found.models_text}) transfer from {_arrow(group)}"
    where = f"over {count_of(found.averaged.n_clusters or 0, 'pair')} of device models"
    answer = _of_mean(found, f"{group.source} -> {group.target}", what, where)
    ceiling = _ceiling(data, latency, pairs, clusters)
    if answer.value is None or ceiling is None:
        return answer
    return replace(answer, answer=f"{answer.answer}, ceiling {ceiling:.2f}", ceiling=ceiling)


def _unordered(group: PairGroup) -> tuple[list[Pair], list[int]]:
    """Each pair once, with the name of its cluster: inside a tier both directions are there."""
    once: dict[frozenset[int], tuple[Pair, int]] = {}
    for pair, number in zip(group.pairs, group.clusters.tolist(), strict=True):
        once.setdefault(frozenset(pair), (pair, number))
    return [pair for pair, _ in once.values()], [cluster for _, cluster in once.values()]


def _ceiling(
    data: BranchData, latency: Measure, pairs: Sequence[Pair], clusters: Sequence[int]
) -> float | None:
    if data.noise is None:
        return None
    found = mean_ceiling(pair_ceilings(replace(data.noise, measure=latency), pairs), clusters)
    return None if np.isnan(found) else found


def _of_mean(found: Agreement, scope: str, what: str, where: str) -> BranchAnswer:
    if found.rho is None:
        text = f"{what}, too few for a rho on any pair"
        return BranchAnswer(scope=scope, answer=text, n_models=found.n_models, reason=found.reason)
    interval = "" if found.low is None else f" [{found.low:.2f}, {found.high:.2f}]"
    null = ""
    alone, p = found.nulls.residual_null_mean, found.nulls.residual_p
    if alone is not None and p is not None:
        verdict = "exceeded" if found.exceeds_flops else "not exceeded"
        # Adding 0 turns a rounded -0 into 0.
        null = f", FLOPs explain {round(alone, 2) + 0:.2f} ({verdict}, p = {p:.2g})"
    return BranchAnswer(
        scope=scope,
        answer=f"{what} with rho {found.rho:.2f}{interval} {where}{null}",
        value=found.rho,
        low=found.low,
        high=found.high,
        n_models=found.n_models,
        n_pairs=found.averaged.n_pairs,
        reason=found.reason,
    )


def _errors(data: BranchData, group: PairGroup) -> BranchAnswer:
    """Leave-one-out error of transformers and hybrids, predicted from all models."""
    families = {"attention": _in_families(data.session.panel, ATTENTION_FAMILIES)}
    families["others"] = ~families["attention"]
    logs = measures(data.session.panel)[0].values
    found = group_errors(logs, group, families)
    rng = np.random.default_rng(data.session.selection.seed)
    interval = error_intervals(found.by_model, families, draws_for(data.pairs).bootstrap, rng)[0]
    n_models = int(found.n_models[0])
    scope = f"{group.source} -> {group.target}"
    mean = float(found.mean[0])
    what = f"From {_arrow(group)}, the {n_models} transformer and hybrid models"
    if np.isnan(mean):
        reason = "too few for a fit over 5 other models"
        return BranchAnswer(scope=scope, answer=f"{what} have no error", n_models=0, reason=reason)
    rho = float(found.rho[0])
    agreement = " are too few for a rho;" if np.isnan(rho) else f" have rho {rho:.2f};"
    width = "" if interval is None else f" [{100 * interval[0]:.0f}, {100 * interval[1]:.0f}]"
    return BranchAnswer(
        scope=scope,
        answer=f"{what}{agreement} their leave-one-out error is {100 * mean:.0f} %{width}",
        value=mean,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        n_models=n_models,
        n_pairs=found.counts.n_pairs,
        reason=None if interval else "no interval below 9 models",
    )


def _tail(data: BranchData) -> BranchAnswer:
    cells = data.session.cells.cells
    ratio = pl.col("latency_p99_ns") / pl.col("latency_ns")
    known = cells.filter(pl.col("latency_ns") > 0).with_columns(ratio.alias("tail"))
    known = known.drop_nulls("tail").sort("tail", "platform_key", "model")
    if known.is_empty():
        reason = "no p99 was measured"
        return BranchAnswer(scope="all platforms", answer="p99 is not known here", reason=reason)
    worst = known.row(-1, named=True)
    middle = float(known.select(pl.col("tail").median()).item())
    return BranchAnswer(
        scope="all platforms",
        answer=f"p99 is {middle:.2f} times p50 on the median of {count_of(known.height, 'cell')} "
        f"and {worst['tail']:.2f} times for {worst['model']} on {worst['platform_key']}",
        value=middle,
        n_models=known["model"].n_unique(),
        reason="no interval: a median over cells of different models",
    )


def _frontier(data: BranchData) -> BranchAnswer:
    try:
        found = compare_frontiers(data.session, parse_objectives(DEFAULT_OBJECTIVES))
    except NoDataError as error:
        return _no_frontier(error.message)
    if not found.is_listed:
        return _no_frontier(f"more than {MAX_LISTED_PAIRS} pairs of platforms")
    is_known = np.isfinite(found.figures["precision"])
    if not is_known.any():
        return _no_frontier("no common model with an accuracy")
    # With few models, nearly all of them are on the frontier of every platform.
    known = is_known & (found.n_models >= MIN_MODELS)
    if not known.any():
        most = int(found.n_models[is_known].max())
        return _no_frontier(f"n = {most}: no precision below {MIN_MODELS} common models", most)
    pairs = pl.DataFrame(dict(found.figures)).filter(pl.Series(known)).fill_nan(None)
    means = pairs.mean().row(0, named=True)
    flops = means["flops_precision"]
    by_flops = "" if flops is None else f", by FLOPs {flops:.2f}"
    n_pairs = int(known.sum())
    return BranchAnswer(
        scope="all pairs",
        answer=f"The frontier of one platform has precision {means['precision']:.2f} and recall "
        f"{means['recall']:.2f} on another, mean of {count_of(n_pairs, 'pair')} (chance "
        f"{means['chance_precision']:.2f}{by_flops})",
        value=means["precision"],
        n_models=int(found.n_models[known].min()),
        n_pairs=n_pairs,
        reason="no interval: a mean over pairs",
    )


def _no_frontier(reason: str, n_models: int | None = None) -> BranchAnswer:
    text = f"Unknown here, {reason}"
    return BranchAnswer(scope="all pairs", answer=text, n_models=n_models, reason=reason)


def _in_families(panel: Panel, families: Sequence[str]) -> Mask:
    return np.array([family in families for family in panel.families], dtype=np.bool_)


def _arrow(group: PairGroup) -> str:
    return f"{group.source} to {group.target}"

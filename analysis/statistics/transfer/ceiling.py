"""The highest agreement possible, given how repeatable each platform is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import few_models_note, few_models_warning
from fleetrank.analysis.panel.pair_groups import Level, Row, agreement_row
from fleetrank.analysis.panel.panel import Panel, incomplete_notes
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS, unlisted
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.transfer.frontier_ceiling import (
    FrontierCeiling,
    frontier_ceilings,
)
from fleetrank.analysis.statistics.transfer.noise import (
    UNLIKE_STATISTICS,
    Method,
    Noise,
    noises,
    platform_interval,
    reliability_of,
    why_unreliable,
)
from fleetrank.analysis.statistics.transfer.transfer import (
    Ceiling,
    GroupTransfer,
    PairTransfer,
    TransferResult,
    known,
    transfer,
)
from fleetrank.analysis.tables.table import Table

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
_NO_CEILING = "no ceiling: a side has no reliability over the common models (rows `platform`)"

_MEANING = (
    "figure: rho of a pair or of a tier (as in table `transfer`), precision and recall of "
    "frontiers (as in `pareto`); in rows `platform` the reliability of the platform's own ranking.",
    "reliability: `pairs of sessions` is the mean rho between the medians of two sessions with 2 "
    "repeats or more and one version of the runtime. It is used where two exist, and is the "
    "generalisability coefficient of one session (Brennan 2001). Otherwise `split repeats`: rho "
    "between the rankings of random halves of each model's repeats, mean over splits, extended to "
    "all repeats by Spearman-Brown. With too few repeats it is the mean rho of `pairs of sweeps`; "
    "differences between versions and days then count as noise.",
    "ceiling = sqrt(reliability_source x reliability_target), over the models of the pair: the "
    "rho of two platforms with the same true ranking. share_of_ceiling = figure / ceiling; a "
    "share above 1 is sampling error. There is none between a mean and a minimum, for example: "
    "even one device could rank models differently by the two.",
    "Repeats of one session share its temperature, versions and memory layout, so they agree "
    "better than repeats from different days: a ceiling from split repeats is an upper bound, and "
    "the share is a lower bound. Table `variance` shows what another session would buy.",
    "Frontiers: the process medians of every cell are resampled twice with replacement, and one "
    "frontier is compared with the other; a pair's ceiling is the geometric mean of both "
    "platforms' own, by analogy. With 2 or 3 repeats resampling understates the noise.",
    "FRM is highly repeatable because FLOPs do not vary at all: compare it with its null.",
    "low to high: 95 % percentile bootstrap over models, from 9 on; none for frontiers.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """How well one platform's ranking agrees with itself; `None` has its `reason`.

    Attributes:
        n_models: with 2 repeats or more, or those that pairs of sweeps have in common.
        low, high: 95 % percentile bootstrap over models; `None` for pairs of sweeps or sessions.
    """

    measure: str
    platform: str
    n_models: int
    value: float | None
    low: float | None
    high: float | None
    method: Method | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingResult:
    """Reliabilities, and the transfer figures with their ceilings.

    Attributes:
        platforms: by latency first, then by FRM.
        transfer: `None` if only one platform was measured.
        frontiers: of single platforms, then of pairs.
        n_splits, n_frontiers: random draws of repeats, and of frontiers.
        notes: facts that the reader must know.
    """

    platforms: tuple[Reliability, ...]
    transfer: TransferResult | None
    frontiers: tuple[FrontierCeiling, ...]
    n_splits: int
    n_frontiers: int
    seed: int
    n_models: int
    notes: tuple[str, ...]


def ceilings(session: Session) -> CeilingResult:
    """Reliability of each platform, and each transfer figure with the ceiling it allows."""
    panel, seed = session.panel, session.selection.seed
    # One platform has no pair, but it has a reliability.
    found = transfer(session) if len(panel.keys) > 1 else None
    pairs = found.selected if found is not None else ()
    columns = sorted({column for pair in pairs for column in pair}) or [0]
    of_measures = noises(session)
    listed = pairs if len(pairs) <= MAX_LISTED_PAIRS else ()
    frontiers, n_frontiers = frontier_ceilings(session, columns, listed)
    return CeilingResult(
        platforms=tuple(
            one for noise in of_measures for one in _reliabilities(panel, noise, columns, seed)
        ),
        transfer=found,
        frontiers=frontiers,
        n_splits=of_measures[0].halves.shape[3],
        n_frontiers=n_frontiers,
        seed=seed,
        n_models=len(panel.models),
        notes=(*panel.notes, *incomplete_notes(panel)),
    )


def _reliabilities(
    panel: Panel, noise: Noise, columns: Sequence[int], seed: int
) -> Iterator[Reliability]:
    every = np.arange(len(panel.models))
    for column in columns:
        value, method, n_models = reliability_of(noise, every, column)
        interval = platform_interval(noise, column, panel.keys[column], seed)
        has_interval = interval is not None and method is Method.SPLIT
        low, high = interval if interval is not None and has_interval else (None, None)
        yield Reliability(
            measure=noise.measure.name,
            platform=panel.keys[column],
            n_models=n_models,
            value=known(value),
            low=low,
            high=high,
            method=method,
            reason=why_unreliable(noise, column) if known(value) is None else None,
        )


def ceiling_table(session: Session) -> Table:
    """Reliability of each platform, and each transfer figure as a share of what it allows."""
    found = ceilings(session)
    selected = found.transfer.selected if found.transfer is not None else ()
    notes = (
        *found.notes,
        *((unlisted(selected),) if len(selected) > MAX_LISTED_PAIRS else ()),
        *few_models_warning(found.n_models),
    )
    explanation = (
        *_MEANING,
        f"Seed {found.seed}: {found.n_splits} splits, 400 resamples of models, "
        f"{found.n_frontiers} pairs of resampled frontiers.",
        *few_models_note(found.n_models),
    )
    frame = pl.DataFrame(list(_rows(found)), schema=_SCHEMA)
    return Table(title="Ceilings", frame=frame, notes=notes, explanation=explanation)


def _rows(found: CeilingResult) -> Iterator[Row]:
    """Platforms first, then tiers, then pairs; measure after measure."""
    of_platforms = [one for one in found.frontiers if one.level is Level.PLATFORM]
    yield from (_platform_row(one) for one in found.platforms)
    yield from (_frontier_row(one) for one in of_platforms)
    if found.transfer is not None:
        groups = found.transfer.groups
        measures = dict.fromkeys(one.agreement.measure for one in groups)
        yield from (
            _group_row(one) for name in measures for one in groups if one.agreement.measure == name
        )
        yield from (_pair_row(one) for one in found.transfer.pairs)
    yield from (_frontier_row(one) for one in found.frontiers[len(of_platforms) :])


def _platform_row(one: Reliability) -> Row:
    return {
        "level": Level.PLATFORM,
        "measure": one.measure,
        "source": one.platform,
        "n_models": one.n_models,
        "figure": one.value,
        "low": one.low,
        "high": one.high,
        "method": one.method,
        "reason": one.reason,
    }


def _group_row(one: GroupTransfer) -> Row:
    why = f"no ceiling: {one.n_lacking} of {one.n_ranked} pairs have none"
    rho, reason = one.agreement.figures.rho, one.agreement.figures.reason
    return agreement_row(one.agreement) | _ceiling(one.ceiling, rho, (reason, why))


def _pair_row(one: PairTransfer) -> Row:
    rho, reason = one.agreement.figures.rho, one.agreement.figures.reason
    has_both = None not in (one.reliability_source, one.reliability_target)
    why = UNLIKE_STATISTICS if has_both else _NO_CEILING
    return (
        agreement_row(one.agreement)
        | {
            "reliability_source": one.reliability_source,
            "reliability_target": one.reliability_target,
        }
        | _ceiling(one.ceiling, rho, (reason, why))
    )


def _ceiling(ceiling: Ceiling, rho: float | None, reasons: tuple[str | None, str]) -> Row:
    """The figure as a share of its ceiling; the second reason is for a missing ceiling."""
    of_figure, of_ceiling = reasons
    is_lacking = ceiling.value is None and rho is not None
    texts = [text for text in (of_figure, of_ceiling if is_lacking else None) if text is not None]
    return {
        "figure": rho,
        "ceiling": ceiling.value,
        "share_of_ceiling": ceiling.share,
        "method": ", ".join(ceiling.methods) or None,
        "reason": "; ".join(texts) or None,
    }


def _frontier_row(one: FrontierCeiling) -> Row:
    return {
        "level": one.level,
        "measure": one.measure,
        "source": one.source,
        "target": one.target,
        "n_models": one.n_models,
        "figure": one.value,
        "reliability_source": one.own_source,
        "reliability_target": one.own_target,
        "ceiling": one.ceiling,
        "share_of_ceiling": one.share,
        "method": None if one.value is None else Method.RESAMPLED,
        "unlike": one.unlike,
        "reason": one.reason,
    }

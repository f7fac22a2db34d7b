"""Which ranks a model can have: on one platform, and on a device that was not measured."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, average_ranks
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.device_models import MIN_SHARE, complete_part
from fleetrank.analysis.panel.observations import DeviceGroup, device_groups, left_out_notes
from fleetrank.analysis.panel.pair_groups import Level
from fleetrank.analysis.panel.panel import Panel, measures
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.ranks.rank_sets import Ranks, RankSets, rank_sets, share_interval
from fleetrank.analysis.stored.cells_table import MIN_REPEATS
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.units import NS_PER_MS
from fleetrank.foundation.wording import count_of

FASTEST = 3
"""Default k: the models among which a user chooses."""
MAX_MODELS = 150
"""The critical values of so many models take 6 s for each platform."""
_LEAST_ERROR = 1e-9
"""Of log latency, where all repeats of a model are equal: no noise was seen, and no error is 0."""

_SCHEMA = {
    "level": pl.String,
    "platform_key": pl.String,
    "runtime": pl.String,
    "precision": pl.String,
    "batch": pl.Int64,
    "tier": pl.String,
    "model": pl.String,
    "n_models": pl.Int64,
    "n_repeats": pl.Int64,
    "n_devices": pl.Int64,
    "latency_ms": pl.Float64,
    "rank": pl.Int64,
    "rank_low": pl.Int64,
    "rank_high": pl.Int64,
    "k": pl.Int64,
    "p_among_k": pl.Float64,
    "p_low": pl.Float64,
    "p_high": pl.Float64,
    "reason": pl.String,
}
_MEANING = (
    "Rows `platform`: the sets rank_low to rank_high hold the true ranks of all models of the "
    "platform at once, with 95 % confidence (Mogstad, Romano, Shaikh and Wilhelm 2024). rank and "
    "latency_ms are of the geometric mean of the process medians of the newest sweep; sets are "
    f"given from {MIN_REPEATS} repeats on.",
    "The sets use the spread of repeats. Repeats of one session agree better than repeats of "
    "different days, so the sets are too narrow for another session: see table `variance`.",
    "Rows `tier`: p_among_k is the share of device models on which the model is among the k "
    "fastest: the probability for a device of this tier that was not measured. p_low to p_high: "
    "95 % exact interval for each model (Clopper and Pearson 1934). It takes the measured device "
    "models as a random sample of the tier. rank is of the mean log latency over devices.",
    "Tiers: one platform for each device model, at equal runtime, precision, batch and axes; "
    f"device models with less than {100 * MIN_SHARE:g} % of the models are left out, then models "
    "that are missing on one of the rest.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOnPlatform:
    """The rank of one model on a platform; 1 is the fastest.

    Attributes:
        n_models: models of the platform.
        n_repeats: processes of the model.
        latency_ms: geometric mean of the process medians; `rank` is of it.
        rank_low, rank_high: simultaneous 95 % set; `None` with its `reason`.
    """

    platform_key: str
    runtime: str
    precision: str
    batch: int
    tier: str
    model: str
    n_models: int
    n_repeats: int
    latency_ms: float
    rank: int
    rank_low: int | None
    rank_high: int | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankInTier:
    """How fast one model is on the device models of a tier, and so on others of the tier.

    Attributes:
        tier: of the devices, or `observations.ALL_TIERS`.
        n_models, n_devices: of the complete table that was used.
        rank: of the mean log latency over devices.
        p_among_k: share of devices on which the model is among the `k` fastest.
        p_low, p_high: its exact 95 % interval.
    """

    runtime: str
    precision: str
    batch: int
    tier: str
    model: str
    n_models: int
    n_devices: int
    rank: int
    k: int
    p_among_k: float
    p_low: float
    p_high: float


def ranks_on_platforms(session: Session) -> list[RankOnPlatform]:
    """Sets of ranks on every platform, from its repeats; the fastest model first.

    Raises:
        NotComparableError: no platform holds comparable rows.
    """
    logs = np.log(session.repeats.processes[0])
    columns = range(len(session.panel.keys))
    return [one for at in columns for one in _on_platform(session, at, logs[:, at])]


def _on_platform(session: Session, column: int, every: Floats) -> Iterator[RankOnPlatform]:
    panel = session.panel
    facts = panel.platforms.row(column, named=True)
    rows = np.flatnonzero(np.isfinite(every).any(axis=1))
    logs = every[rows]
    counts, means = np.isfinite(logs).sum(axis=1), np.nanmean(logs, axis=1)
    stream = zlib.crc32(facts["platform_key"].encode())
    sets, reason = _sets(
        logs, counts, means, np.random.default_rng([session.selection.seed, stream])
    )
    ranks = _ranks(means)
    for at in np.argsort(means, kind="stable").tolist():
        yield RankOnPlatform(
            platform_key=facts["platform_key"],
            runtime=facts["runtime"],
            precision=facts["precision"],
            batch=facts["batch"],
            tier=facts["tier"],
            model=panel.models[rows[at]],
            n_models=rows.size,
            n_repeats=int(counts[at]),
            latency_ms=float(np.exp(means[at]) / NS_PER_MS),
            rank=int(ranks[at]),
            rank_low=None if sets is None else int(sets.low[at]),
            rank_high=None if sets is None else int(sets.high[at]),
            reason=reason,
        )


def _ranks(means: Floats) -> Ranks:
    """1 is the smallest; equal means share the lowest rank."""
    return np.asarray(1 + (means[:, None] > means).sum(axis=1), dtype=np.int64)


def _sets(
    logs: Floats, counts: Ranks, means: Floats, rng: np.random.Generator
) -> tuple[RankSets | None, str | None]:
    """Sets of ranks, or why there are none."""
    fewest = int(counts.min())
    if fewest < MIN_REPEATS:
        return None, f"a model has {count_of(fewest, 'repeat')}, at least {MIN_REPEATS} needed"
    if not 1 < means.size <= MAX_MODELS:
        return None, f"{count_of(means.size, 'model')}, computed for 2 to {MAX_MODELS}"
    spread: Floats = np.nanstd(logs, axis=1, ddof=1)
    errors = np.maximum(spread / np.sqrt(counts), _LEAST_ERROR)
    degrees = (counts - 1).astype(np.float64)
    return rank_sets(means, errors, degrees, rng), None


def ranks_in_tiers(session: Session, k: int) -> list[RankInTier]:
    """Probability to be among the `k` fastest on another device; the fastest model first.

    Groups with fewer than 2 device models or 5 models, and those with no more than `k` models, have
    no rows.

    Raises:
        NotComparableError: no platform holds comparable rows.
    """
    groups = (group for group in device_groups(session) if len(group.keys) > 1)
    return [one for group in groups for one in _in_tier(session.panel, group, k)]


def _in_tier(panel: Panel, group: DeviceGroup, k: int) -> Iterator[RankInTier]:
    mine = [at for at, key in enumerate(panel.keys) if key in group.keys]
    logs = measures(panel)[0].values[:, mine]
    measured = np.flatnonzero(np.isfinite(logs).any(axis=1))
    rows, columns = complete_part(np.isfinite(logs[measured]))
    if rows.size < max(MIN_MODELS, k + 1) or columns.size < 2:
        return
    complete = logs[np.ix_(measured[rows], columns)]
    hits = (average_ranks(complete) <= k).sum(axis=1)
    means = complete.mean(axis=1)
    ranks = _ranks(means)
    for at in np.argsort(means, kind="stable").tolist():
        low, high = share_interval(int(hits[at]), columns.size)
        yield RankInTier(
            runtime=group.runtime,
            precision=group.precision,
            batch=group.batch,
            tier=group.tier,
            model=panel.models[measured[rows[at]]],
            n_models=rows.size,
            n_devices=columns.size,
            rank=int(ranks[at]),
            k=k,
            p_among_k=float(hits[at] / columns.size),
            p_low=low,
            p_high=high,
        )


def rank_sets_table(session: Session) -> Table:
    """Sets of ranks on every platform, and who is among the fastest on another device.

    Settings: `k`, how many of the fastest models count.
    """
    k = setting(session.selection, "k", FASTEST)
    if k != int(k) or k < 1:
        raise AnalysisError(f"k={k:g} is out of range", "use a whole number from 1 on")
    rows: list[RankInTier | RankOnPlatform] = [
        *ranks_in_tiers(session, int(k)),
        *ranks_on_platforms(session),
    ]
    notes = (*session.panel.notes, *left_out_notes(device_groups(session)))
    return ranks_as_table(rows, notes)


def ranks_as_table(
    found: Sequence[RankInTier | RankOnPlatform], notes: tuple[str, ...] = ()
) -> Table:
    """One row for each model of each tier or platform."""
    levels = {RankInTier: Level.TIER, RankOnPlatform: Level.PLATFORM}
    rows = [{"level": levels[type(one)]} | asdict(one) for one in found]
    frame = pl.DataFrame(rows, schema=_SCHEMA)
    return Table(title="Sets of ranks", frame=frame, notes=notes, explanation=_MEANING)

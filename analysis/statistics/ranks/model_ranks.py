"""Part `ranks` of table `trust`: which ranks a model can have, here and on unmeasured devices."""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from fleetrank.analysis.arrays.pareto import Mask
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, average_ranks, require_finite
from fleetrank.analysis.arrays.two_samples import Figures
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.conditions import Level
from fleetrank.analysis.panel.device_models import MIN_SHARE, complete_part
from fleetrank.analysis.panel.observations import DeviceGroup, device_groups, left_out_notes
from fleetrank.analysis.panel.panel import Panel, measures
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.measured.process_noise import noise_of
from fleetrank.analysis.stored.cell_values import MIN_REPEATS
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.units import NS_PER_MS
from fleetrank.foundation.wording import count_of

Ranks = npt.NDArray[np.int64]
FASTEST = 3
"""Default k: the models among which a user chooses."""
MAX_MODELS = 150
"""No user reads more sets; critical values of 1,000 models take 0.5 s for each platform."""
_LEAST_ERROR = 1e-9
"""Of log latency, where all repeats of a model are equal: no noise was seen, and no error is 0."""
_DRAWS = 2000
"""The 95 % quantile of this many draws has a standard error of half a per cent of probability."""
_LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRank:
    """The rank of one model on a platform, or on the device models of a tier; 1 is the fastest.

    Attributes:
        tier: of the devices, or `observations.ALL_TIERS`.
        n_models: models of the platform, or of the complete table of a tier.
        n_repeats: of a platform, processes of the model.
        n_devices: of a tier, the device models that were used.
        latency_ms: of a platform, the figure that `faster` compares; `rank` is of it. In a
            tier it is of the mean log latency over devices.
        rank_low, rank_high: simultaneous 95 % set on a platform; `None` with its `reason`.
        p_among_k: share of devices on which the model is among the `k` fastest.
        p_low, p_high: its exact 95 % interval.
    """

    level: Level
    platform_key: str | None = None
    runtime: str | None
    precision: str | None
    batch: int
    tier: str
    model: str
    n_models: int
    n_repeats: int | None = None
    n_devices: int | None = None
    latency_ms: float | None = None
    rank: int
    rank_low: int | None = None
    rank_high: int | None = None
    k: int | None = None
    p_among_k: float | None = None
    p_low: float | None = None
    p_high: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSets:
    """Ranks of (n_models,), 1 is the smallest value; each set is `low` to `high`.

    All true ranks lie in their sets at once with a probability of at least 95 %.
    """

    rank: Ranks
    low: Ranks
    high: Ranks


def rank_sets_table(session: Session) -> Table:
    """Sets of ranks on every platform, and who is among the fastest on another device.

    Settings: `k`, how many of the fastest models count.
    """
    k = setting(session.selection, "k", FASTEST)
    if k != int(k) or k < 1:
        raise AnalysisError(f"k={k:g} is out of range", "use a whole number from 1 on")
    values = {"min_repeats": MIN_REPEATS, "min_share": f"{100 * MIN_SHARE:g}"}
    return Table.of(
        ModelRank,
        [*ranks_in_tiers(session, int(k)), *ranks_on_platforms(session)],
        title="Sets of ranks",
        notes=(*session.panel.notes, *left_out_notes(device_groups(session))),
        explanation=explained("trust/ranks", values),
    )


def ranks_on_platforms(session: Session) -> list[ModelRank]:
    """Sets of ranks on every platform, from its repeats; the fastest model first.

    Raises:
        NotComparableError: no platform holds comparable rows.
    """
    figures = noise_of(session)
    columns = range(len(session.panel.keys))
    return [one for at in columns for one in _on_platform(session, at, figures)]


def _on_platform(session: Session, column: int, every: Figures) -> Iterator[ModelRank]:
    panel = session.panel
    facts = panel.platforms.row(column, named=True)
    rows = np.flatnonzero(np.isfinite(every.logs[:, column]))
    figures = every.at((rows, column))
    stream = zlib.crc32(facts["platform_key"].encode())
    sets, reason = _sets(figures, np.random.default_rng([session.selection.seed, stream]))
    ranks = _ranks(figures.logs)
    for at in np.argsort(figures.logs, kind="stable").tolist():
        yield ModelRank(
            level=Level.PLATFORM,
            platform_key=facts["platform_key"],
            runtime=facts["runtime"],
            precision=facts["precision"],
            batch=facts["batch"],
            tier=facts["tier"],
            model=panel.models[rows[at]],
            n_models=rows.size,
            n_repeats=int(figures.n[at]),
            latency_ms=float(np.exp(figures.logs[at]) / NS_PER_MS),
            rank=int(ranks[at]),
            rank_low=None if sets is None else int(sets.low[at]),
            rank_high=None if sets is None else int(sets.high[at]),
            reason=reason,
        )


def _ranks(means: Floats) -> Ranks:
    """1 is the smallest; equal means share the lowest rank."""
    return np.asarray(1 + (means[:, None] > means).sum(axis=1), dtype=np.int64)


def _sets(figures: Figures, rng: np.random.Generator) -> tuple[RankSets | None, str | None]:
    """Sets of ranks, or why there are none."""
    fewest = int(figures.n.min(initial=MIN_REPEATS))
    if fewest < MIN_REPEATS:
        return None, f"a model has {count_of(fewest, 'repeat')}, at least {MIN_REPEATS} needed"
    if not 1 < figures.n.size <= MAX_MODELS:
        return None, f"{count_of(figures.n.size, 'model')}, computed for 2 to {MAX_MODELS}"
    errors = np.maximum(figures.errors, _LEAST_ERROR)
    return rank_sets(figures.logs, errors, figures.degrees, rng), None


def ranks_in_tiers(session: Session, k: int) -> list[ModelRank]:
    """Probability to be among the `k` fastest on another device; the fastest model first.

    Groups with fewer than 2 device models or 5 models, and those with no more than `k` models, have
    no rows.

    Raises:
        NotComparableError: no platform holds comparable rows.
    """
    groups = (group for group in device_groups(session) if len(group.keys) > 1)
    return [one for group in groups for one in _in_tier(session.panel, group, k)]


def _in_tier(panel: Panel, group: DeviceGroup, k: int) -> Iterator[ModelRank]:
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
        yield ModelRank(
            level=Level.TIER,
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


def rank_sets(means: Floats, errors: Floats, degrees: Floats, rng: np.random.Generator) -> RankSets:
    """Simultaneous confidence sets for the ranks of independent means.

    Two models are in order if the studentised difference of their means exceeds a critical value:
    the 95 % quantile of the largest one of all pairs without any true difference. Pairs that are
    in order are then left out, and the rest is tested again, until no pair is added.

    Args:
        means: (n_models,), smaller is better.
        errors: standard error of each mean, above 0.
        degrees: degrees of freedom of each error, `inf` for a known one.
        rng: draws the critical values.

    Source: Mogstad, Romano, Shaikh and Wilhelm 2024, algorithm 3.2 with the step-down of Romano and
    Wolf 2005; normal draws, each error drawn with its degrees of freedom.
    """
    require_finite(means)
    z = rng.standard_normal((_DRAWS, means.size)) * errors
    drawn = errors**2 * _chi_square_ratio(degrees, rng)
    observed = (means[:, None] - means) / np.sqrt(errors[:, None] ** 2 + errors**2)
    own = z**2 / drawn
    order = np.argsort(-own, axis=1)
    own = np.take_along_axis(own, order, axis=1)
    # Rounding must not end a search before the largest pair.
    limits = (np.sqrt(own[:, :-1] + own[:, 1:]) * (1 + 1e-9)).T
    is_open = ~np.eye(means.size, dtype=np.bool_)
    while is_open.any():
        largest = _largest(z, drawn, zip(order.T, limits, strict=False), is_open)
        found = is_open & (observed > np.quantile(largest, _LEVEL))
        if not found.any():
            break
        is_open &= ~found
    is_above = ~is_open & ~np.eye(means.size, dtype=np.bool_)
    low, high = 1 + is_above.sum(axis=1), means.size - is_above.sum(axis=0)
    return RankSets(rank=_ranks(means), low=low, high=high)


def _chi_square_ratio(degrees: Floats, rng: np.random.Generator) -> Floats:
    """Draws of an estimated variance over the true one, (draws, n_models)."""
    known = np.isinf(degrees)
    finite = np.where(known, 1.0, degrees)
    ratio: Floats = rng.chisquare(finite, (_DRAWS, degrees.size)) / finite
    return np.where(known, 1.0, ratio)


def _largest(
    z: Floats, variances: Floats, firsts: Iterable[tuple[Ranks, Floats]], is_open: Mask
) -> Floats:
    """The largest studentised difference among the open ordered pairs in each draw, (draws,).

    From (draws, n_models) twice. No pair exceeds what its two models have alone: (a - b)^2 / (u +
    v) <= a^2 / u + b^2 / v. So the model with the largest is compared with all, then the next one,
    until no further pair can be larger: after a few models of a hundred. `firsts` has the models in
    this order and the limit of all further pairs, (draws,) each.
    """
    largest, left = np.full(len(z), -np.inf), np.arange(len(z))
    for first, limit in firsts:
        left = left[limit[left] > largest[left]]
        model = first[left]
        some = z[left, model, None] - z[left]
        some /= np.sqrt(variances[left, model, None] + variances[left])
        forward = np.where(is_open[model], some, -np.inf).max(axis=1)
        backward = np.where(is_open.T[model], some, np.inf).min(axis=1)
        largest[left] = np.maximum(largest[left], np.maximum(forward, -backward))
    return largest


def share_interval(hits: int, n: int) -> tuple[float, float]:
    """95 % interval of a probability after `hits` of `n` independent devices.

    A bootstrap over devices gives an interval of width 0 when all devices agree; this one does not.
    Source: Clopper and Pearson 1934: it covers at least 95 % for every n.
    """
    tail = (1 - _LEVEL) / 2
    low = special.betaincinv(hits, n - hits + 1, tail) if hits > 0 else 0.0
    high = special.betaincinv(hits + 1, n - hits, 1 - tail) if hits < n else 1.0
    return float(low), float(high)

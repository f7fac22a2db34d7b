"""Is the model that is faster here also faster on the devices of users?

Two models, one platform where the question is asked, and every other platform: the order of the two
is kept there, reversed, equal or undecided. Where they were not measured, the order is kept with a
probability: see `arrays.kept_order`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import special

from fleetrank.analysis.arrays.kept_order import (
    FLOOR,
    MIN_DEVICES,
    Ints,
    KeptCurve,
    closeness,
    expected,
    learned_curve,
    level_of,
)
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.figures import platform_labels
from fleetrank.analysis.panel.panel import measures
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.audit import doubtful_cells
from fleetrank.analysis.statistics.pair_answer import (
    Order,
    PairAnswer,
    PairOrder,
    pair_sentences,
    with_users,
)
from fleetrank.analysis.stored.selection import fits_platform, margin_of, setting
from fleetrank.analysis.tables.explanations import explained
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.errors import count_of, nearest
from fleetrank.foundation.vocabulary import NS_PER_MS

DEFAULT_MARGIN = 0.05
"""Users do not notice a smaller difference, and two processes of one model differ by as much."""
CONFIDENCE = 0.95
MAX_LISTED = 5000
"""Pairs of models in one answer: all pairs of a hundred models."""
_MOST_MODELS = 100
"""Models among which the page looks for a pair: 4,950 pairs."""
_MOST_SOURCES = 60
"""Platforms that a probability uses; more make it slower and hardly better."""
_SURE = 0.95
"""The probability for which the sentence on gaps names the gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noise:
    """Spread of one process, for each platform, (n_platforms,); NaN where it is not known.

    Attributes:
        variance: of the logarithm of the latency, from repeats of one model.
        degrees: degrees of freedom of the variance.
        n: processes behind each figure, (n_models, n_platforms).
    """

    variance: Floats
    degrees: Floats
    n: Ints


def noise_of(session: Session) -> _Noise:
    """The spread of processes on each platform, pooled over its models.

    That of releases of one source, where a release has one figure of each model. A platform without
    any has that of the platforms with the same kind of samples and origin.
    """
    processes, releases = (
        np.log(cube[0]) for cube in (session.repeats.processes, session.repeats.sweeps)
    )
    n = np.isfinite(processes).sum(axis=-1)
    squares, degrees = _within(processes)
    more = _within(releases)
    is_bare = degrees == 0
    squares[is_bare], degrees[is_bare] = more[0][is_bare], more[1][is_bare]
    kinds = session.panel.platforms.select(pl.concat_str("origin", "sample_kind", separator=" "))
    names = kinds.to_series().fill_null("").to_list()
    for name in set(names):
        mine = np.array([one == name for one in names])
        lacking = mine & (degrees == 0)
        squares[lacking], degrees[lacking] = squares[mine].sum(), degrees[mine].sum()
    variance = np.where(degrees > 0, squares / np.maximum(degrees, 1), np.nan)
    return _Noise(variance=variance, degrees=degrees, n=np.maximum(n, 1))


def _within(logs: Floats) -> tuple[Floats, Floats]:
    """Squares around the mean of each model, and their degrees, summed over models, by platform."""
    n = np.isfinite(logs).sum(axis=-1)
    known = np.where(np.isfinite(logs), logs, 0.0)
    mean = known.sum(axis=-1) / np.maximum(n, 1)
    squares = np.where(np.isfinite(logs), (logs - mean[..., None]) ** 2, 0.0).sum(axis=(0, -1))
    degrees: Floats = np.maximum(n - 1, 0).sum(axis=0).astype(np.float64)
    return squares, degrees


class _Fleet:
    """The figures of a session that answers about pairs share."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.panel = panel = session.panel
        self.logs = measures(panel)[0].values
        self.doubts = _doubts(session)
        for row, column in self.doubts:
            self.logs[row, column] = np.nan
        self.facts = panel.platforms.with_row_index("at")
        models = pl.coalesce("device_model", "device").cast(pl.String)
        names = panel.platforms.select(models).to_series().to_list()
        self.clusters: Ints = np.unique(names, return_inverse=True)[1].astype(np.int64)
        self.labels = platform_labels(panel.platforms).names
        self.noise = noise_of(session)
        self.margin = margin_of(session.selection, DEFAULT_MARGIN)
        self._curves: dict[tuple[bytes, int], KeptCurve | None] = {}

    def chosen(self, pattern: str | None, tier: str | None) -> Ints:
        """Columns of the platforms that fit."""
        return self.facts.filter(fits_platform(pattern, tier))["at"].to_numpy().astype(np.int64)

    def curve(self, sources: Ints, level: int) -> KeptCurve | None:
        """How often an order that these platforms expect is kept; made once."""
        key = (sources.tobytes(), level)
        if key not in self._curves:
            rng = np.random.default_rng([self.session.selection.seed, level])
            self._curves[key] = learned_curve(self.logs, sources, self.clusters, level, rng)
        return self._curves[key]


def _doubts(session: Session) -> Mapping[tuple[int, int], str]:
    """What the audit says about single figures, by row and column of the panel."""
    row = {name: at for at, name in enumerate(session.panel.models)}
    column = {key: at for at, key in enumerate(session.panel.keys)}
    found = doubtful_cells(session)
    return {(row[model], column[key]): said for (model, key), said in found.items()}


def _fleet(session: Session) -> _Fleet:
    return session.once(_Fleet)


def faster(
    session: Session, a: str, b: str, *, users: Mapping[str, float] | None = None
) -> PairAnswer:
    """Which of two models is the faster one here, and on the devices of users.

    The selection's source chooses where "here" is, its target the other platforms.

    Args:
        session: the rows to use.
        a: name of a model.
        b: name of another.
        users: share of users by device or device model, above 0; they are made to sum to 1.

    Raises:
        AnalysisError: both names are one model.
        NoDataError: a model has no row, or no chosen platform measured both.
    """
    fleet = _fleet(session)
    rows = _row_of(fleet, a), _row_of(fleet, b)
    if rows[0] == rows[1]:
        raise AnalysisError(f"{a} and {b} are one model", "name two models")
    return _answer(fleet, rows, _here(fleet, rows), users)


def _answer(
    fleet: _Fleet, rows: tuple[int, int], here: int, users: Mapping[str, float] | None = None
) -> PairAnswer:
    rows = _faster_first(fleet, rows, here)
    sources = _sources(fleet, rows, here)
    targets = [*_targets(fleet, rows, here, sources)]
    shares, unknown = dict[str, float](), list[str]()
    if users:
        known = {one.platform_key: one for one in targets}
        shares, unknown = _shares(fleet, users, (fleet.panel.keys[here], *known))
        targets += [_unmeasured(fleet, rows, None, sources, name) for name in unknown]
    answer = PairAnswer(
        here=replace(_measured(fleet, rows, here), order=Order.HERE),
        targets=tuple(targets),
        margin=fleet.margin,
        notes=fleet.session.comparable.notes,
    )
    answer = _with_gap(fleet, answer, here)
    return with_users(answer, shares, unknown, fleet.session.selection.seed)


def _faster_first(fleet: _Fleet, rows: tuple[int, int], here: int) -> tuple[int, int]:
    a, b = rows
    return (b, a) if fleet.logs[a, here] > fleet.logs[b, here] else (a, b)


def _shares(
    fleet: _Fleet, users: Mapping[str, float], keys: Sequence[str]
) -> tuple[dict[str, float], list[str]]:
    """Shares by platform key, a device's split over its platforms, and devices without a row."""
    names = pl.concat_list(pl.col("platform_key", "device", "device_model").str.to_lowercase())
    listed = fleet.facts.filter(pl.col("platform_key").is_in(keys)).select(
        "platform_key", names=names
    )
    shares, unknown = dict[str, float](), list[str]()
    for name, share in users.items():
        mine = listed.filter(pl.col("names").list.contains(name.lower()))["platform_key"].to_list()
        if not mine:
            unknown.append(name)
        for key in mine or [name]:
            shares[key] = shares.get(key, 0.0) + share / max(len(mine), 1)
    total = sum(shares.values())
    return {key: share / total for key, share in shares.items()}, unknown


def _row_of(fleet: _Fleet, name: str) -> int:
    models = fleet.panel.models
    if name in models:
        return models.index(name)
    near = nearest(name, models)
    hint = f"did you mean '{near}'? " if near else ""
    raise NoDataError(
        f"no platform has a comparable latency of '{name}'",
        f"{hint}measure it with `fleetrank run {name}`, or import published figures",
    )


def _has_both(fleet: _Fleet, rows: tuple[int, int]) -> npt.NDArray[np.bool_]:
    a, b = np.isfinite(fleet.logs[list(rows)])
    both: npt.NDArray[np.bool_] = a & b
    return both


def _here(fleet: _Fleet, rows: tuple[int, int]) -> int:
    """The column where the question about two models is asked."""
    here = _best_here(fleet, _has_both(fleet, rows))
    if here is None:
        a, b = (fleet.panel.models[row] for row in rows)
        raise NoDataError(
            f"no chosen platform measured both {a} and {b}",
            f"measure them here: `fleetrank ab {a} {b}`",
        )
    return here


def _common_here(fleet: _Fleet) -> int:
    """The column that counts as here for every pair."""
    has_any: npt.NDArray[np.bool_] = np.isfinite(fleet.logs).sum(axis=0) > 0
    here = _best_here(fleet, has_any)
    if here is None:
        raise NoDataError(
            "no chosen platform has a comparable latency", "choose another one with `source=`"
        )
    return here


def _best_here(fleet: _Fleet, is_usable: npt.NDArray[np.bool_]) -> int | None:
    """Of the chosen platforms: measured rather than imported, most models, fewest threads."""
    selection = fleet.session.selection
    n_models = np.isfinite(fleet.logs).sum(axis=0)
    facts = fleet.panel.platforms.select("origin", "threads", "platform_key").rows()

    def rank(at: int) -> tuple[object, ...]:
        origin, threads, key = facts[at]
        return origin != "measured", -n_models[at], threads or 0, key

    chosen: list[int] = fleet.chosen(selection.source, selection.source_tier).tolist()
    return min((at for at in chosen if is_usable[at]), key=rank, default=None)


def _measured(fleet: _Fleet, rows: tuple[int, int], at: int) -> PairOrder:
    """The two models on a platform that measured both."""
    a, b = rows
    log = float(fleet.logs[b, at] - fleet.logs[a, at])
    n_a, n_b = int(fleet.noise.n[a, at]), int(fleet.noise.n[b, at])
    error = math.sqrt(fleet.noise.variance[at] * (1 / n_a + 1 / n_b))
    low = high = None
    if math.isfinite(error):
        reach = float(special.stdtrit(fleet.noise.degrees[at], (1 + CONFIDENCE) / 2)) * error
        low, high = log - reach, log + reach
    return replace(
        _named(fleet, rows, _order(log, low, high, math.log1p(fleet.margin)), at),
        ratio=math.exp(log),
        low=None if low is None else math.exp(low),
        high=None if high is None else math.exp(high),
        latency_a_ms=math.exp(fleet.logs[a, at]) / NS_PER_MS,
        latency_b_ms=math.exp(fleet.logs[b, at]) / NS_PER_MS,
        n_a=n_a,
        n_b=n_b,
    )


def _order(log: float, low: float | None, high: float | None, margin: float) -> Order:
    """Of a log ratio that is above 0 here; without an interval the margin decides alone."""
    if low is None or high is None:
        low, high = log - margin, log + margin
    elif -margin < low and high < margin:
        return Order.EQUAL
    if low > 0:
        return Order.KEPT
    return Order.REVERSED if high < 0 else Order.UNDECIDED


def _targets(fleet: _Fleet, rows: tuple[int, int], here: int, sources: Ints) -> Iterator[PairOrder]:
    """The other platforms with both models, then the best known platform of each other device."""
    alike = _chosen_targets(fleet, here)
    both = _has_both(fleet, rows)
    yield from (_measured(fleet, rows, at) for at in alike if both[at])
    for at in alike:
        if said := _doubt(fleet, rows, at):
            yield _doubted(fleet, rows, at, said)
    seen = {fleet.clusters[at] for at in (here, *(at for at in alike if both[at]))}
    n_models = np.isfinite(fleet.logs).sum(axis=0)
    best: dict[int, int] = {}
    for at in sorted(alike, key=n_models.__getitem__):
        best[int(fleet.clusters[at])] = at
    for cluster, at in best.items():
        if cluster not in seen:
            yield _unmeasured(fleet, rows, at, sources)


def _chosen_targets(fleet: _Fleet, here: int) -> list[int]:
    """The other platforms with the batch that is used here, of those that the target selects."""
    selection = fleet.session.selection
    chosen, is_alike = fleet.chosen(selection.target, selection.target_tier), _alike(fleet, here)
    return [int(at) for at in chosen if is_alike[at]]


def _doubt(fleet: _Fleet, rows: tuple[int, int], at: int) -> str | None:
    return next((fleet.doubts[row, at] for row in rows if (row, at) in fleet.doubts), None)


def _named(
    fleet: _Fleet, rows: tuple[int, int], order: Order, at: int | None, name: str = ""
) -> PairOrder:
    """A row without figures; `at` is `None` for a device without a stored row, which has a name."""
    key = name if at is None else fleet.panel.keys[at]
    return PairOrder(
        model_a=fleet.panel.models[rows[0]],
        model_b=fleet.panel.models[rows[1]],
        platform_key=key,
        label=fleet.labels.get(key, key),
        order=order,
    )


def _doubted(fleet: _Fleet, rows: tuple[int, int], at: int, said: str) -> PairOrder:
    a, b = (float(fleet.panel.latency[row, at]) for row in rows)
    named = _named(fleet, rows, Order.DOUBTFUL, at)
    ratio = b / a if math.isfinite(a) and math.isfinite(b) and a > 0 else None
    return replace(named, ratio=ratio, reason=said)


def _alike(fleet: _Fleet, here: int) -> npt.NDArray[np.bool_]:
    """Other platforms with the batch that is used here, (n_platforms,)."""
    batches = fleet.panel.platforms["batch"].to_list()
    return np.array([at != here and one == batches[here] for at, one in enumerate(batches)])


def _sources(fleet: _Fleet, rows: tuple[int, int], here: int) -> Ints:
    """Columns of the platforms with both models: here first, then at most some drawn others."""
    others = np.flatnonzero(_has_both(fleet, rows) & _alike(fleet, here)).tolist()
    if len(others) >= _MOST_SOURCES:
        rng = np.random.default_rng(fleet.session.selection.seed)
        others = sorted(rng.choice(others, _MOST_SOURCES - 1, replace=False).tolist())
    return np.array([here, *others], dtype=np.int64)


def _unmeasured(
    fleet: _Fleet, rows: tuple[int, int], at: int | None, sources: Ints, name: str = ""
) -> PairOrder:
    """The two models on a platform that lacks one; `at` is `None` for a device without any row."""
    named = _named(fleet, rows, Order.NOT_MEASURED, at, name)
    known: Ints = np.array([], dtype=np.int64)
    others = sources
    if at is not None:
        known = np.flatnonzero(np.isfinite(fleet.logs[:, at]))
        others = sources[fleet.clusters[sources] != fleet.clusters[at]]
    if others.size == 0:
        return replace(named, reason="no other device measured both")
    curve = fleet.curve(sources, level_of(known.size))
    if curve is None:
        return replace(named, reason=f"fewer than {MIN_DEVICES} device models with many models")
    weights = closeness(fleet.logs, at, known, others, fleet.clusters)
    a, b = rows
    n_devices = np.unique(fleet.clusters[others]).size
    found = expected(fleet.logs[b, others] - fleet.logs[a, others], weights)
    log, gap = float(found.ratio), float(found.gap)
    ends = [float(one) for one in (curve.probability(gap), *curve.interval(gap))]
    said, low, high = ends if log >= 0 else (1 - ends[0], 1 - ends[2], 1 - ends[1])
    return replace(
        named,
        ratio=math.exp(log),
        probability=said,
        probability_low=low,
        probability_high=high,
        reason=f"expected from {count_of(n_devices, 'device model')}",
    )


def _with_gap(fleet: _Fleet, answer: PairAnswer, here: int) -> PairAnswer:
    """Adds how often an order with this gap here is kept elsewhere, over all models.

    A single source has no spread beside the floor.
    """
    curve = fleet.curve(np.array([here], dtype=np.int64), 0)
    if curve is None or answer.here.ratio is None:
        return answer
    needed = curve.gap_for(_SURE)
    return replace(
        answer,
        gap_kept=float(curve.probability(math.log(answer.here.ratio) / FLOOR)),
        gap_needed=None if needed is None else math.exp(needed * FLOOR),
        curve=curve,
    )


# All pairs of one model, or all that are reversed somewhere, and the table of both.


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCount:
    """One pair of models over all platforms; model A is the faster one here.

    Attributes:
        kept, reversed, equal, undecided: other platforms that measured both, by their order.
        reversed_on: the platform where A is slowest beside B, if its order is reversed.
        worst_ratio: latency of B over that of A there.
    """

    model_a: str
    model_b: str
    ratio: float | None
    low: float | None
    high: float | None
    kept: int
    reversed: int
    equal: int
    undecided: int
    reversed_on: str | None
    worst_ratio: float | None


def pair_counts(session: Session, a: str | None = None) -> tuple[PairCount, ...]:
    """Each pair of a model, most often reversed first; without a model all that are reversed.

    Raises:
        AnalysisError: more than `MAX_LISTED` pairs would be compared.
        NoDataError: the model has no row, or no chosen platform measured two models.
    """
    fleet = _fleet(session)
    models = fleet.panel.models
    firsts = range(len(models)) if a is None else [_row_of(fleet, a)]
    pairs = [(i, j) for i in firsts for j in range(len(models)) if (j > i if a is None else j != i)]
    if len(pairs) > MAX_LISTED:
        raise AnalysisError(
            f"{len(pairs)} pairs of models are too many to list, at most {MAX_LISTED}",
            "name one model, or choose some with `model=`",
        )
    here = _common_here(fleet)
    has_both = [rows for rows in pairs if _has_both(fleet, rows)[here]]
    counts = [_count(fleet, rows, here) for rows in has_both]
    shown = [one for one in counts if a is not None or one.reversed]
    return tuple(sorted(shown, key=lambda one: (-one.reversed, one.ratio or 1.0)))


def main_pair(session: Session) -> PairAnswer | None:
    """The pair that matters most: reversed on most other platforms, though clearly apart here.

    Of the fastest models here. `None` if no other platform measured two of them.
    """
    fleet = _fleet(session)
    here = _common_here(fleet)
    elsewhere = fleet.logs[:, _alike(fleet, here)]
    has = np.isfinite(fleet.logs[:, here]) & np.isfinite(elsewhere).any(axis=1)
    rows = np.flatnonzero(has)[np.argsort(fleet.logs[has, here], kind="stable")][:_MOST_MODELS]
    first, second = np.triu_indices(rows.size, 1)
    gaps = fleet.logs[rows[second], here] - fleet.logs[rows[first], here]
    margin = math.log1p(fleet.margin)
    with np.errstate(invalid="ignore"):
        others = elsewhere[rows[second]] - elsewhere[rows[first]]
        n_reversed = (others < -margin).sum(axis=1)
    is_usable = np.isfinite(others).any(axis=1) & (gaps > margin)
    if not is_usable.any():
        return None
    best = np.lexsort((gaps, np.where(is_usable, n_reversed, -1)))[-1]
    return _answer(fleet, (int(rows[first[best]]), int(rows[second[best]])), here)


def _count(fleet: _Fleet, rows: tuple[int, int], here: int) -> PairCount:
    rows = _faster_first(fleet, rows, here)
    one, both = _measured(fleet, rows, here), _has_both(fleet, rows)
    others = [_measured(fleet, rows, at) for at in _chosen_targets(fleet, here) if both[at]]
    worst = min(
        (other for other in others if other.order is Order.REVERSED),
        key=lambda other: other.ratio or 1.0,
        default=None,
    )
    number = {order: sum(other.order is order for other in others) for order in Order}
    return PairCount(
        model_a=one.model_a,
        model_b=one.model_b,
        ratio=one.ratio,
        low=one.low,
        high=one.high,
        kept=number[Order.KEPT],
        reversed=number[Order.REVERSED],
        equal=number[Order.EQUAL],
        undecided=number[Order.UNDECIDED],
        reversed_on=worst.label if worst else None,
        worst_ratio=worst.ratio if worst else None,
    )


def pairs_table(session: Session) -> Table:
    """Two models on every platform, or how often each pair keeps its order.

    Settings: `model_a` and `model_b` name the models, `margin` the largest difference of no
    interest. `source` chooses where the question is asked, `target` the other platforms.

    Raises:
        AnalysisError, NoDataError: as `faster` and `pair_counts`.
    """
    a, b = (setting(session.selection, name, "") for name in ("model_a", "model_b"))
    if a and b:
        return pair_table(faster(session, a, b))
    counts = pair_counts(session, a or b or None)
    fleet = _fleet(session)
    here = fleet.labels[fleet.panel.keys[_common_here(fleet)]]
    return Table.of(
        PairCount,
        counts,
        title=f"Orders of {a or b} and others" if a or b else "Orders that are reversed",
        notes=(*session.comparable.notes, f"Here: {here}."),
        explanation=_explanation(fleet.margin),
    )


def pair_table(answer: PairAnswer) -> Table:
    """The rows of an answer, here first, with its sentences as notes."""
    return Table.of(
        PairOrder,
        (answer.here, *answer.targets),
        title=f"Is {answer.here.model_a} faster than {answer.here.model_b} elsewhere, too?",
        notes=(*answer.notes, *pair_sentences(answer)),
        explanation=_explanation(answer.margin),
    )


def _explanation(margin: float) -> tuple[str, ...]:
    return explained("pairs", {"margin": margin, "min_devices": MIN_DEVICES})

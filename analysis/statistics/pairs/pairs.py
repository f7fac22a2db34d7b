"""Is the model that is faster here also faster on the devices of users?

Two models, one platform where the question is asked, and every other platform: the order of the two
is kept there, reversed, equal or undecided. Where they were not measured, the order is kept with a
probability: see `arrays.kept_order`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.kept_order import (
    FLOOR,
    MIN_DEVICES,
    MIN_MODELS,
    MIN_OWN,
    DeviceCurve,
    Ints,
    KeptCurve,
    closeness,
    expected,
    level_of,
    measured_pairs,
    some_pairs,
)
from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session, how_to_measure
from fleetrank.analysis.statistics.pairs.pair_answer import (
    Effort,
    NextStep,
    PairAnswer,
    gap_sentences,
    pair_sentences,
    relative_to_here,
)
from fleetrank.analysis.statistics.pairs.pair_fleet import PairFleet, fleet_of
from fleetrank.analysis.statistics.pairs.pair_next import (
    measuring_command,
    repeats_to_settle,
    with_users,
)
from fleetrank.analysis.statistics.pairs.pair_orders import UNLIKE, Order, PairOrder, order_here
from fleetrank.analysis.statistics.pairs.pair_quantities import QUANTITIES
from fleetrank.analysis.statistics.pairs.pair_users import platform_shares
from fleetrank.analysis.stored.cell_values import MIN_REPEATS
from fleetrank.analysis.stored.selection import fits_text
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.vocabulary import Origin, Precision, Tier
from fleetrank.foundation.wording import count_of

_MOST_MODELS = 100
"""Models among which the page looks for a pair: 4,950 pairs."""
_MOST_SOURCES = 60
"""Platforms that a probability uses; more make it slower and hardly better."""
SURE = 0.95
"""The probability for which the sentence on gaps names the gap."""


def faster(
    session: Session,
    a: str,
    b: str,
    *,
    users: Mapping[str, float] | None = None,
    devices: Iterable[str] = (),
    has_gap: bool = True,
) -> PairAnswer:
    """Which of two models is the faster one here, and on the devices of users.

    The selection's source chooses where "here" is; its target, runtime and precision choose the
    other platforms. Its setting `quantity` compares memory or energy in place of latency.

    Args:
        session: the rows to use.
        a: name of a model, or `NAME:PRECISION` for one precision of it.
        b: name of another.
        users: share of users by device or device model, above 0; they are made to sum to 1.
        devices: names of known devices; one without any row counts as not measured.
        has_gap: also learns how often such a gap is kept, which takes longer than the answer.

    Raises:
        AnalysisError: both names are one model, or one has several precisions to choose from.
        NoDataError: a model has no row, or no chosen platform measured both.
    """
    fleet = fleet_of(session, (a, b))
    rows = fleet.row_of(a), fleet.row_of(b)
    if rows[0] == rows[1]:
        raise AnalysisError(f"{a} and {b} are one model", "name two models")
    here = _here(fleet, rows)
    answer = _answer(fleet, rows, here, users, devices)
    answer = replace(answer, notes=fleet.notes(a, b))
    return _with_gap(fleet, answer, here) if has_gap else answer


def _answer(
    fleet: PairFleet,
    rows: tuple[int, int],
    here: int,
    users: Mapping[str, float] | None = None,
    devices: Iterable[str] = (),
) -> PairAnswer:
    rows = fleet.faster_first(rows, here)
    sources = _sources(fleet, rows, here)
    targets = [*_targets(fleet, rows, here, sources)]
    found = platform_shares(
        fleet.named([fleet.panel.keys[here], *(one.platform_key for one in targets)]), users or {}
    )
    registered = [*devices]
    lacking = dict.fromkeys([*found.unknown, *_without_rows(fleet, registered)])
    if lacking:  # all of them are expected to be alike, and there may be thousands
        alike = _unmeasured(fleet, rows, None, sources)
        targets += [replace(alike, platform_key=name, label=name) for name in lacking]
    answer = PairAnswer(
        here=replace(fleet.measured_order(rows, here), order=Order.HERE),
        origin=fleet.facts["origin"][here],
        targets=tuple(targets),
        margin=fleet.margin,
        quantity=fleet.quantity.name,
        notes=fleet.notes(),
    )
    answer = relative_to_here(answer)
    steps = _candidates(fleet, rows, here, answer, registered)
    return with_users(answer, found, steps, fleet.selection.seed)


def _candidates(
    fleet: PairFleet,
    rows: tuple[int, int],
    here: int,
    answer: PairAnswer,
    registered: Sequence[str],
) -> Iterator[NextStep]:
    """What can be measured next: here, if nothing is shown there, and else the open targets."""
    is_own = pl.col("device").is_in(registered) | (pl.col("origin") == Origin.MEASURED)
    own = fleet.facts.filter(is_own).select("platform_key", "tier")
    tiers = dict.fromkeys(registered) | dict(own.iter_rows())
    places = [one for one in answer.targets if one.is_open]
    is_open = order_here(answer.here, answer.margin) is Order.UNDECIDED
    if is_open and answer.origin == Origin.MEASURED:
        places = [answer.here]
    for one in places:
        effort = _effort(fleet, rows, here, one)
        takes_turns = tiers.get(one.platform_key) in (Tier.CPU, Tier.GPU)
        command = measuring_command(
            one,
            effort.n_processes,
            takes_turns=takes_turns and answer.quantity == "latency",
            workload=str(fleet.session.workload),
        )
        is_mine = one.platform_key in tiers
        yield NextStep(row=one, effort=effort, is_own=is_mine, command=command if is_mine else None)


def _without_rows(fleet: PairFleet, devices: Iterable[str]) -> Iterator[str]:
    """Devices without any row, of those that the target's pattern fits."""
    known = set(fleet.facts["device"])
    pattern = fleet.selection.target or "*"
    yield from (name for name in devices if name not in known and fits_text(pattern, name))


def _effort(fleet: PairFleet, rows: tuple[int, int], here: int, one: PairOrder) -> Effort:
    """What settles a target, or here: processes of each model, and the minutes they take.

    Where both are missing, as many as here; at least those of an interval. A model that was not
    timed there takes as long as on the median platform.
    """
    keys = fleet.panel.keys
    at = keys.index(one.platform_key) if one.platform_key in keys else None
    n = int(fleet.figures.n[list(rows), here].max())
    if at is not None and one.order in (Order.UNDECIDED, Order.HERE):
        variance = float(fleet.figures.variance[list(rows), at].mean())
        # A new sweep does not add to the processes of an older one.
        n = (repeats_to_settle(one, variance, fleet.margin) or 0) + min(one.n_a or 0, one.n_b or 0)
    n = max(n, MIN_REPEATS)
    minutes = 0.0
    for model in (one.model_a, one.model_b):
        known = fleet.minutes.get((model, one.platform_key))
        others = [took for (name, _), took in fleet.minutes.items() if name == model]
        if known is None and not others:
            return Effort(n_processes=n, minutes=None)
        minutes += n * (float(np.median(others)) if known is None else known)
    return Effort(n_processes=n, minutes=minutes)


def _here(fleet: PairFleet, rows: tuple[int, int]) -> int:
    """The column where the question about two models is asked."""
    here = fleet.best_here(fleet.has_both(rows))
    if here is None:
        a, b = (fleet.panel.models[row] for row in rows)
        # Of models that were measured in one precision each.
        known = [fleet.facts.filter(np.isfinite(fleet.logs[row]))["precision"] for row in rows]
        ones = [one[0] for one in known if one.n_unique() == 1 and one[0] in [*Precision]]
        how = how_to_measure(a, b)
        if len({*ones}) > 1:
            precise = " ".join(f"{one}:{of}" for one, of in zip((a, b), ones, strict=True))
            how = f"files of unlike precision: `fleetrank faster {precise}`; {how}"
        raise NoDataError(f"no chosen platform measured both {a} and {b}", how)
    return here


def _targets(
    fleet: PairFleet, rows: tuple[int, int], here: int, sources: Ints
) -> Iterator[PairOrder]:
    """The other platforms with both models, doubtful ones, and one of each other device.

    Of a device without any of them, that is the platform with most models. Each is there once.
    """
    alike = fleet.chosen_targets(here)
    both = fleet.has_both(rows)
    yield from (fleet.measured_order(rows, at) for at in alike if both[at])
    doubted = {at: said for at in alike if not both[at] and (said := _doubt(fleet, rows, at))}
    yield from (_doubted(fleet, rows, at, sources, said) for at, said in doubted.items())
    unlike = {
        at: said for at in alike if at not in doubted and (said := fleet.why_unlike(rows, at))
    }
    yield from (_shown_unlike(fleet, rows, at, said) for at, said in unlike.items())
    seen = {
        fleet.clusters[at] for at in (here, *doubted, *unlike, *(at for at in alike if both[at]))
    }
    n_models = np.isfinite(fleet.logs).sum(axis=0)
    best: dict[int, int] = {}
    for at in sorted(alike, key=n_models.__getitem__):
        best[int(fleet.clusters[at])] = at
    for cluster, at in best.items():
        if cluster not in seen:
            yield _unmeasured(fleet, rows, at, sources)


def _doubt(fleet: PairFleet, rows: tuple[int, int], at: int) -> str | None:
    return next((fleet.doubts[row, at] for row in rows if (row, at) in fleet.doubts), None)


def _shown_unlike(fleet: PairFleet, rows: tuple[int, int], at: int, said: str) -> PairOrder:
    """A row with its figures, whose order is not believed before it is measured again."""
    one = fleet.measured_order(rows, at)
    is_kept = one.ratio is not None and one.ratio > 1
    order = Order.KEPT_UNLIKE if is_kept else Order.REVERSED_UNLIKE
    return replace(one, order=order, reason=f"{UNLIKE}: {said}")


def _doubted(
    fleet: PairFleet, rows: tuple[int, int], at: int, sources: Ints, said: str
) -> PairOrder:
    """A row with the stored ratio, and the probability that it has without the doubtful figure."""
    a, b = (float(fleet.panel.latency[row, at]) for row in rows)
    ratio = b / a if math.isfinite(a) and math.isfinite(b) and a > 0 else None
    row = _unmeasured(fleet, rows, at, sources)
    return replace(row, order=Order.DOUBTFUL, ratio=ratio, reason=said)


def _sources(fleet: PairFleet, rows: tuple[int, int], here: int) -> Ints:
    """Columns of the platforms with both models: here first, then at most some drawn others."""
    others = np.flatnonzero(fleet.has_both(rows) & fleet.alike_platforms(here)).tolist()
    if len(others) >= _MOST_SOURCES:
        rng = np.random.default_rng(fleet.selection.seed)
        others = sorted(rng.choice(others, _MOST_SOURCES - 1, replace=False).tolist())
    return np.array([here, *others], dtype=np.int64)


def _unmeasured(
    fleet: PairFleet, rows: tuple[int, int], at: int | None, sources: Ints
) -> PairOrder:
    """The two models on a platform that lacks one; `at` is `None` for a device without any row."""
    named = fleet.named_order(rows, Order.NOT_MEASURED, at)
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
    ratios = np.array([fleet.log_ratio(a, b, at) for at in others.tolist()])
    usual = fleet.usual(others, weights)
    found = expected(ratios, weights, usual)
    log, gap = float(found.ratio), float(found.gap)
    own: KeptCurve | DeviceCurve = curve
    if at is not None and known.size >= MIN_OWN:
        pair = some_pairs(known, np.random.default_rng(fleet.selection.seed))
        own = curve.on(measured_pairs(fleet.logs, at, pair, others, weights, usual))
    is_unlike = isinstance(own, DeviceCurve) and own.is_unlike
    ends = [float(curve.shown(one)) for one in (own.probability(gap), *own.interval(gap))]
    said, low, high = ends if log >= 0 else (1 - ends[0], 1 - ends[2], 1 - ends[1])
    reason = f"expected from {count_of(n_devices, 'device model')}"
    return replace(
        named,
        ratio=None if is_unlike else math.exp(log),
        probability=said,
        probability_low=low,
        probability_high=high,
        reason=f"{UNLIKE} in the {known.size} models measured there" if is_unlike else reason,
    )


def _with_gap(fleet: PairFleet, answer: PairAnswer, here: int) -> PairAnswer:
    """Adds how often an order with this gap here is kept elsewhere, over all models.

    Without it where too few models are measured here: another platform has other gaps. A single
    source has no spread beside the floor.
    """
    curve = fleet.curve(np.array([here], dtype=np.int64), 0)
    n_models = int(np.isfinite(fleet.logs[:, here]).sum())
    if n_models < MIN_MODELS or curve is None or answer.here.ratio is None:
        return answer
    needed = curve.gap_for(SURE)
    return replace(
        answer,
        gap_kept=float(curve.probability(math.log(answer.here.ratio) / FLOOR)),
        gap_needed=None if needed is None else math.exp(needed * FLOOR),
        curve=curve,
    )


def main_pair(session: Session) -> PairAnswer | None:
    """The pair that matters most: reversed on most other platforms, though clearly apart here.

    Of the fastest models here. `None` if no other platform measured two of them.
    """
    fleet = fleet_of(session)
    here = fleet.common_here()
    elsewhere = fleet.logs[:, fleet.alike_platforms(here)]
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


def pair_table(answer: PairAnswer) -> Table:
    """The rows of an answer, here first, with its sentences as notes."""
    return Table.of(
        PairOrder,
        (answer.here, *answer.targets),
        title=QUANTITIES[answer.quantity].question.format(
            a=answer.here.model_a, b=answer.here.model_b
        ),
        notes=(*answer.notes, *pair_sentences(answer)),
        explanation=(*pairs_explanation(answer.margin), *gap_sentences(answer)),
    )


def pairs_explanation(margin: float) -> tuple[str, ...]:
    """What the orders of two models mean."""
    return explained("pairs/platforms", {"margin": margin, "min_devices": MIN_DEVICES})

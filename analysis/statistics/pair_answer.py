"""The answer about two models: their order on each platform, and what it means for users."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

import numpy as np
from scipy import special

from fleetrank.analysis.arrays.bootstrap import percentile_interval
from fleetrank.analysis.arrays.kept_order import KeptCurve
from fleetrank.analysis.labels import KEY, PARTS
from fleetrank.foundation.errors import count_of, few_of, nearest
from fleetrank.foundation.vocabulary import BYTES_PER_MIB, NS_PER_MS, Origin

_DRAWS = 4000
_Z = 1.959964
"""Standard normal deviations to each end of a 95 % interval."""
_Z_OF_POWER = 0.841621
"""The same for a probability of 80 %, with which the advised repeats settle an order."""
SINGLE_MARGIN = 0.15
"""Two single values closer than this may be of equal models: processes of one device differ by 4 to
6 %, so that 95 % of such ratios lie within 1.96 x 1.41 x 5 % = 14 %."""
_NAMED = 3
"""Platforms named in a sentence."""
_MOST_PARTS = 2
"""A sum of shares above it is of percent, or of numbers of users."""
_ROUNDED = 0.005
"""A sum of rounded shares differs from 100 % by so much."""
_LARGEST_GAP = 100
"""Beyond it a gap is an extrapolation: models of one use differ less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What is compared, and how sentences say it; smaller is better.

    Attributes:
        name: also that of the panel's array.
        column: of the stored rows.
        per_unit: what one of the unit is in the column's own.
        ratio: how A, here and by a ratio above 1, differs from B.
        kept, reversed: how the one who speaks first in `ratio` is elsewhere.
        better: A where its order is kept.
        best: the first of several.
    """

    name: str
    column: str
    unit: str
    per_unit: float
    question: str
    ratio: str
    kept: str
    reversed: str
    better: str
    best: str


def _consumed(name: str, column: str, unit: str, per_unit: float) -> Quantity:
    return Quantity(
        name=name,
        column=column,
        unit=unit,
        per_unit=per_unit,
        question=f"Does {{a}} need less {name} than {{b}} elsewhere, too?",
        ratio=f"{{b}} needs {{ratio:.2f}} times the {name} of {{a}}",
        kept="also more",
        reversed="less",
        better=f"needs less {name}",
        best=f"needs the least {name}",
    )


QUANTITIES = {
    "latency": Quantity(
        name="latency",
        column="latency_p50_ns",
        unit="ms",
        per_unit=NS_PER_MS,
        question="Is {a} faster than {b} elsewhere, too?",
        ratio="{a} is {ratio:.2f} times as fast as {b}",
        kept="also faster",
        reversed="slower",
        better="is faster",
        best="is the fastest",
    ),
    "memory": _consumed("memory", "peak_memory_bytes", "MiB", BYTES_PER_MIB),
    "energy": _consumed("energy", "energy_mj", "mJ", 1.0),
}


UNLIKE = "unlike the others"
"""The reason of a row begins so if its figures, or the orders measured there, are unlike."""


class Order(StrEnum):
    """What is known of the order of two models on a platform; the first whose condition holds."""

    HERE = "here"
    """The platform where the question is asked."""
    DOUBTFUL = "doubtful"
    """One of the two figures has a known fault; it counts for nothing."""
    NOT_MEASURED = "not measured"
    """One of the two models is missing; the row has a probability, as a doubtful one."""
    EQUAL = "equal"
    """The interval of the ratio is inside the margin."""
    KEPT = "kept"
    """The interval of the ratio is on the side of the ratio here."""
    REVERSED = "reversed"
    UNDECIDED = "undecided"
    KEPT_UNLIKE = "kept?"
    """A figure is unlike what the platform's other models and other platforms say, without a known
    fault. It may be true, so the order is shown, and counts as undecided."""
    REVERSED_UNLIKE = "reversed?"
    MIXED = "mixed"
    """Of a device: kept in some of its settings, reversed in others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOrder:
    """Two models on one platform; model A is the faster one here. A missing figure is `None`.

    Attributes:
        label: the platform, by what differs between the platforms of the answer.
        device: its device model, or its device if that has none.
        ratio: figure of B over that of A: how many times as fast A is.
        low, high: 95 % interval of the ratio; `None` without repeats, here or anywhere in the same
            source.
        value_a, value_b: their figures, in `unit`.
        n_a, n_b: processes.
        probability: that A is the faster one, if the two were not both measured without doubt.
        probability_low, probability_high: 95 % of further devices lie inside.
    """

    model_a: str
    model_b: str
    platform_key: str
    label: str
    order: Order
    device: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    value_a: float | None = None
    value_b: float | None = None
    unit: str | None = None
    n_a: int | None = None
    n_b: int | None = None
    probability: float | None = None
    probability_low: float | None = None
    probability_high: float | None = None
    reason: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether a further measurement can settle the order."""
        return self.order in (Order.NOT_MEASURED, Order.DOUBTFUL, Order.UNDECIDED, *_UNLIKE)

    @property
    def is_unlike(self) -> bool:
        """Whether its figures, or the orders that were measured there, are unlike the others."""
        return self.reason is not None and self.reason.startswith(UNLIKE)


_UNLIKE = (Order.KEPT_UNLIKE, Order.REVERSED_UNLIKE)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserShare:
    """What the choice means for users, whose devices have shares.

    Attributes:
        faster, low, high: share of users for whom A is the faster one, with a 95 % interval.
        cost: what choosing A costs where B is shown to be better, in the unit of the figures,
            averaged over the users of measured devices; 0 if it is better nowhere, `None` if no
            device measured both.
        measured: share of users whose device measured both models.
        unknown: devices of which no row is stored.
        notes: what was done with the shares.
    """

    faster: float
    low: float
    high: float
    cost: float | None
    measured: float
    unknown: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformShares:
    """Shares of users by platform key, with the sum 1; those of an unknown device by its name."""

    shares: Mapping[str, float]
    unknown: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """More processes of each of the two models, and how long they take, if that is known."""

    n_processes: int
    minutes: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """The target that settles most per minute, and the share of users, or of platforms, it has.

    Attributes:
        is_own: the device is registered, or was measured here; another one is named if none is.
    """

    row: PairOrder
    share: float
    effort: Effort
    is_own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PairAnswer:
    """The answer for two models; A is the faster one here.

    Attributes:
        origin: of the rows here; `imported` ones are not of the user's machine.
        targets: every other platform that measured both, then one for each device that did not.
        gap_kept: share of pairs with this gap whose order is kept elsewhere, from all models here;
            `None` if too few are measured here or elsewhere.
        gap_needed: the ratio whose order is kept in 95 % of such pairs; `None` if none is.
        curve: behind both; that of a probability has other sources.
    """

    here: PairOrder
    origin: str
    targets: tuple[PairOrder, ...]
    margin: float
    quantity: str = "latency"
    gap_kept: float | None = None
    gap_needed: float | None = None
    curve: KeptCurve | None = None
    users: UserShare | None = None
    next_step: NextStep | None = None
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What a person reads, a sentence a line: the verdict first."""
        return "\n".join(pair_sentences(self))


def with_users(
    answer: PairAnswer,
    found: PlatformShares,
    efforts: Mapping[str, Effort],
    own: Collection[str],
    seed: int,
) -> PairAnswer:
    """Adds what the choice means for users, and what to measure next.

    Args:
        answer: has a row for each platform key of the shares.
        found: shares of users; without any, all targets weigh alike.
        efforts: what settles each open target, by its platform key.
        own: platform keys, or names, of devices that the user can measure.
        seed: of the draws.
    """
    targets = {one.platform_key: one for one in answer.targets}
    alike = dict.fromkeys(targets, 1 / max(len(targets), 1))
    return replace(
        answer,
        next_step=_next_step(targets, found.shares or alike, efforts, own),
        users=_user_share(answer, found, seed) if found.shares else None,
    )


def _next_step(
    targets: Mapping[str, PairOrder],
    shares: Mapping[str, float],
    efforts: Mapping[str, Effort],
    own: Collection[str],
) -> NextStep | None:
    """The target that settles most of its share per minute; `None` if none is open.

    Of the user's own devices, if one of them is open.
    One whose time is not known counts as the median one.
    """
    known = [one.minutes for one in efforts.values() if one.minutes]
    usual = float(np.median(known)) if known else 1.0
    gains = {
        key: shares.get(key, 0.0) * _openness(targets[key]) / (one.minutes or usual)
        for key, one in efforts.items()
    }
    key = max(
        gains,
        key=lambda key: (
            key in own and gains[key] > 0,
            targets[key].order in _UNLIKE and gains[key] > 0,
            gains[key],
        ),
        default=None,
    )
    if key is None or gains[key] == 0:
        return None
    return NextStep(row=targets[key], share=shares[key], effort=efforts[key], is_own=key in own)


def repeats_to_settle(one: PairOrder, variance: float, margin: float) -> int | None:
    """Further processes of each model that show the order, or that both are equal, in 4 of 5 cases.

    `None` if the spread of processes is not known. The figures are medians of processes.
    """
    if one.ratio is None or one.n_a is None or one.n_b is None or not math.isfinite(variance):
        return None
    log = abs(math.log(one.ratio))
    gap = max(log, math.log1p(margin) - log)
    needed = math.pi * variance * ((_Z + _Z_OF_POWER) / gap) ** 2
    return max(math.ceil(needed) - min(one.n_a, one.n_b), 1)


def _openness(one: PairOrder) -> float:
    """1 where nothing is known, 0 where the order is: 4 p (1 - p) of its probability."""
    if one.order in (Order.UNDECIDED, *_UNLIKE) or not one.is_open:
        return float(one.is_open)
    p = 0.5 if one.probability is None else one.probability
    return 4 * p * (1 - p)


def _user_share(answer: PairAnswer, found: PlatformShares, seed: int) -> UserShare:
    """Draws the order on each device, as often as it is so; the interval is over these draws."""
    rows = {one.platform_key: one for one in (answer.here, *answer.targets)}
    shares = found.shares
    weights, chances = np.array(
        [(share, _chance(rows[key], answer.margin)) for key, share in shares.items()]
    ).T
    rng = np.random.default_rng(seed)
    low, high = percentile_interval((rng.random((_DRAWS, chances.size)) < chances) @ weights)
    measured = {key: share for key, share in shares.items() if rows[key].value_a is not None}
    total = sum(measured.values())
    lost = sum(share * _lost(rows[key]) for key, share in measured.items())
    return UserShare(
        faster=float(weights @ chances),
        low=float(low),
        high=float(high),
        cost=lost / total if total else None,
        measured=total,
        unknown=found.unknown,
        notes=found.notes,
    )


def _chance(one: PairOrder, margin: float) -> float:
    """That A is the faster one on a platform, by what is known of it."""
    if one.order is Order.HERE and one.low is None and one.ratio is not None:
        # As elsewhere: where nothing shows the spread, the margin decides.
        return 1.0 if one.ratio > 1 + max(margin, SINGLE_MARGIN) else 0.5
    if one.order in (Order.KEPT, Order.REVERSED):
        return float(one.order is Order.KEPT)
    if one.probability is not None:
        return one.probability
    if one.ratio is None or one.low is None or one.high is None or one.order in _UNLIKE:
        return 0.5
    if one.low == one.high:
        return 0.5 if one.ratio == 1 else float(one.ratio > 1)
    error = math.log(one.high / one.low) / 2 / _Z
    return float(special.ndtr(math.log(one.ratio) / error))


def _lost(one: PairOrder) -> float:
    if one.order is not Order.REVERSED or one.value_a is None or one.value_b is None:
        return 0.0
    return one.value_a - one.value_b


# What a person reads.


def pair_sentences(answer: PairAnswer) -> tuple[str, ...]:
    """The answer in sentences: the verdict first, then its parts, then what to measure."""
    parts = (
        (_verdict(answer),),
        (f"Here {answer.here.reason}.",) if answer.here.reason else (),
        _in_other_settings(answer),
        _on_targets(answer),
        tuple(_not_measured(answer)),
        _of_users(answer),
        _of_gap(answer),
        _next(answer),
        _alike(answer),
    )
    return tuple(sentence for part in parts for sentence in part)


_MEASURED = (Order.KEPT, Order.REVERSED, Order.EQUAL, Order.UNDECIDED, *_UNLIKE)
_OF_DEVICE = (
    Order.REVERSED, Order.REVERSED_UNLIKE, Order.KEPT, Order.KEPT_UNLIKE, Order.UNDECIDED,
    Order.EQUAL,
)  # fmt: skip
"""A device has the first of these orders that one of its settings has."""
_NEARLY_ALL = 0.9
"""Share of the other devices from which on the answer is yes or no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOrder:
    """Two models on a device in all its settings: runtimes, precisions, threads.

    Attributes:
        rows: its platforms that measured both.
        order: mixed, or the first of `_OF_DEVICE`.
    """

    device: str
    rows: tuple[PairOrder, ...]

    @property
    def order(self) -> Order:
        """See the class."""
        found = {row.order for row in self.rows}
        if found >= {Order.KEPT, Order.REVERSED}:
            return Order.MIXED
        return next(one for one in _OF_DEVICE if one in found)

    @property
    def having(self) -> tuple[PairOrder, ...]:
        """The settings that have the order of the device, or the opposite one; the worst first."""
        wanted = Order.REVERSED if self.order is Order.MIXED else self.order
        some = (row for row in self.rows if row.order is wanted)
        return tuple(sorted(some, key=lambda row: row.ratio or 1.0))

    @property
    def said(self) -> str:
        """Its name and worst ratio, and in how many settings."""
        some, worst = self.having, self.having[0]
        name = self.device if len(self.rows) > 1 else worst.label
        part = f" in {len(some)} of {len(self.rows)} settings" if len(some) < len(self.rows) else ""
        return f"{name}: {worst.ratio:.2f}{part}" if worst.ratio else f"{name}{part}"


def by_device(rows: Iterable[PairOrder]) -> tuple[DeviceOrder, ...]:
    """Each device of some rows that measured both models, in their order."""
    of_device: dict[str, list[PairOrder]] = {}
    for one in rows:
        if one.order in _MEASURED:
            of_device.setdefault(one.device, []).append(one)
    return tuple(DeviceOrder(device=name, rows=tuple(some)) for name, some in of_device.items())


def _verdict(answer: PairAnswer) -> str:
    here, words = answer.here, QUANTITIES[answer.quantity]
    said = words.ratio.format(a=here.model_a, b=here.model_b, ratio=here.ratio)
    is_own = answer.origin == Origin.MEASURED
    place, label = ("here", f"; {here.label}") if is_own else (f"on {here.label}", "")
    if here.low is None:
        said += f" {place} (one value each, no interval{label})"
    else:
        said += f" {place} ({here.low:.2f} to {here.high:.2f}, {_processes(here)}{label})"
    least = 1.0 if here.low is not None else 1 + max(answer.margin, SINGLE_MARGIN)
    if here.ratio is not None and (here.low or here.ratio) <= least:
        return f"Undecided {'here' if is_own else 'there'}: {said}."
    measured = by_device(one for one in answer.targets if one.device != here.device)
    kept, swapped, mixed = (
        sum(one.order is order for one in measured)
        for order in (Order.KEPT, Order.REVERSED, Order.MIXED)
    )
    devices = count_of(len(measured), "other device")
    if not measured:
        return f"Not known elsewhere: {said}; no other device measured both."
    if mixed and not kept + swapped:
        return f"It depends: {said}; on {mixed} of {devices} the order changes with the settings."
    if not kept + swapped:
        return f"Not shown elsewhere: {said}; of {devices}, none shows a difference."
    most = max(kept, swapped)
    word = "Yes" if kept >= swapped else "No"
    if most < _NEARLY_ALL * len(measured):
        some = "Not everywhere" if swapped + mixed else "Not shown everywhere"
        word = some if kept >= swapped else "Mostly not"
    how = words.kept if kept >= swapped else words.reversed
    rows = [row for one in measured for row in one.rows]
    where = f"{most} of {devices}{_conditions(here, rows)}"
    return f"{word}: {said}, and {how} on {where}."


def holds(answer: PairAnswer, unless: Literal["reversed", "undecided"]) -> bool:
    """Whether no device has the order reversed, or also none undecided, that of here included."""
    bad = {Order.REVERSED, Order.MIXED} | (
        {Order.UNDECIDED, *_UNLIKE} if unless == "undecided" else set()
    )
    is_clear = answer.here.low is None or answer.here.low > 1 or unless == "reversed"
    return is_clear and not any(one.order in bad for one in by_device(answer.targets))


def _in_other_settings(answer: PairAnswer) -> tuple[str, ...]:
    """What the other settings of the device say where the question is asked."""
    mine = (one for one in answer.targets if one.device == answer.here.device)
    for one in by_device(mine):  # none, or this device
        n, kept = len(one.rows), sum(row.order is Order.KEPT for row in one.rows)
        if kept == n:
            settings = "the other setting" if n == 1 else f"all {n} other settings"
            return (f"The same in {settings} of this device.",)
        parts = [f"kept in {kept}"] if kept else []
        if (order := one.having[0].order) is not Order.KEPT:
            parts.append(f"{order} in {_listed(one.having)}")
        return (f"In {count_of(n, 'other setting')} of this device: {', '.join(parts)}.",)
    return ()


_CONDITIONS = ("backend", "precision", "runtime")


def conditions_of(platform_key: str) -> tuple[str, ...]:
    """What a platform may have in common with all others but the one here."""
    found = KEY.fullmatch(platform_key)
    parts = dict(zip(PARTS, found.groups() if found else PARTS, strict=True))
    return tuple(parts[name] for name in _CONDITIONS)


def _conditions(here: PairOrder, others: Sequence[PairOrder]) -> str:
    """In which conditions nearly all of some platforms differ from here; empty without any."""
    theirs, ours = list[str](), list[str]()
    words = [conditions_of(one.platform_key) for one in (here, *others)]
    for own, *parts in zip(*words, strict=True):
        unlike = [one for one in parts if one != own]
        if len(unlike) >= _NEARLY_ALL * len(parts):
            theirs.append(" or ".join(sorted({*unlike})))
            ours.append(own)
    return f" ({', '.join(theirs)}; here {', '.join(ours)})" if ours else ""


def _processes(one: PairOrder) -> str:
    n_a, n_b = one.n_a or 0, one.n_b or 0
    return count_of(n_a, "process", "processes") if n_a == n_b else f"{n_a} and {n_b} processes"


def _on_targets(answer: PairAnswer) -> tuple[str, ...]:
    others = [one for one in answer.targets if one.device != answer.here.device]
    devices = by_device(others)
    said = []
    for order in (*_MEASURED, Order.MIXED):
        some = [one for one in devices if one.order is order]
        some.sort(key=lambda one: one.having[0].ratio or 1.0)
        named = "; ".join([one.said for one in some[:_NAMED]] + ["..."] * (len(some) > _NAMED))
        if some:
            said.append(f"{order.capitalize()} on {len(some)}")
            said[-1] += "." if order is Order.KEPT else f" ({named})."
    rows = [row for one in devices for row in one.rows]
    if bare := sum(one.low is None for one in rows):
        is_every = bare == len(rows)
        said.append(
            f"No repeats are stored for {'any' if is_every else bare} of them: there, only "
            f"differences above {_percent(max(answer.margin, SINGLE_MARGIN))} count."
        )
    if doubtful := [one for one in answer.targets if one.order is Order.DOUBTFUL]:
        said.append(f"Left out: {_listed(doubtful)}, whose figures are doubtful.")
    return (" ".join(said),) if said else ()


def _listed(rows: Sequence[PairOrder]) -> str:
    """The worst cases by name."""
    worst = sorted(rows, key=lambda one: one.ratio or 1.0)
    named = [
        one.label if one.ratio is None else f"{one.label}: {one.ratio:.2f}"
        for one in worst[:_NAMED]
    ]
    return "; ".join([*named, *(["..."] if len(rows) > _NAMED else [])])


def _not_measured(answer: PairAnswer) -> Iterator[str]:
    rows = [one for one in answer.targets if one.order is Order.NOT_MEASURED]
    unlike = [one for one in rows if one.is_unlike]
    like = [one for one in rows if not one.is_unlike]
    said = [one for one in like if one.probability is not None]
    what = f"{answer.here.model_a} {QUANTITIES[answer.quantity].better} there with probability"
    where = f"Not measured on {count_of(len(like), 'device')}"
    if said:
        yield f"{where}: {what} {_chances(said)}, {said[0].reason}."
    elif like:
        yield f"{where}, without a probability: {like[0].reason}."
    for one in unlike[:_NAMED]:
        yield f"Not measured on {one.label}, {one.reason}: {what} {_chances([one])}."
    if n_more := len(unlike[_NAMED:]):
        yield f"Not measured on {n_more} more that are {UNLIKE}."


def _chances(rows: Sequence[PairOrder]) -> str:
    p, low, high = (
        float(np.mean([getattr(one, name) for one in rows]))
        for name in ("probability", "probability_low", "probability_high")
    )
    return f"{p:.2f} ({low:.2f} to {high:.2f})"


def _of_users(answer: PairAnswer) -> tuple[str, ...]:
    users = answer.users
    if users is None:
        return ()
    said = [
        f"Of your users: {answer.here.model_a} {QUANTITIES[answer.quantity].better} for "
        f"{_percent(users.faster)} ({_percent(users.low)} to {_percent(users.high)})"
    ]
    if users.cost:
        said.append(f"choosing it costs {users.cost:.3g} {answer.here.unit} on average")
    sentence = "; ".join(said) + "."
    return (" ".join((sentence, *users.notes)),)


def platform_shares(
    listed: Sequence[tuple[str | None, ...]], users: Mapping[str, float]
) -> PlatformShares:
    """Shares by platform key, a device's split evenly over its platforms.

    Args:
        listed: platforms, each with its key and the names of its device.
        users: share of users by device or device model.
    """
    keys, shown = defaultdict[str, dict[str, None]](dict), dict[str, str]()
    for row in listed:
        for name in filter(None, row):
            keys[name.lower()][row[0] or ""] = None
            shown[name.lower()] = name
    shares, unknown, split = dict[str, float](), list[str](), list[str]()
    for name, share in users.items():
        mine = keys.get(name.lower(), {})
        if len(mine) != 1:
            (split if mine else unknown).append(name)
        for key in mine or [name]:
            shares[key] = shares.get(key, 0.0) + share / max(len(mine), 1)
    total = sum(shares.values())
    # To look for a similar name is slow, and few are said.
    said = [
        f"{name} (did you mean '{shown[near]}'?)" if (near := nearest(name, shown)) else name
        for name in unknown[:_NAMED]
    ]
    return PlatformShares(
        shares={key: share / total for key, share in shares.items()},
        unknown=tuple(unknown),
        notes=_shares_sentences(sum(users.values()), [*said, *unknown[_NAMED:]], split)
        if users
        else (),
    )


def _shares_sentences(
    given: float, unknown: Sequence[str], split: Sequence[str]
) -> tuple[str, ...]:
    """What was done with shares of users that sum to `given`.

    Args:
        given: their sum.
        unknown: devices without a measurement, the first of them with the most similar known name.
        split: devices with several platforms.
    """
    said = []
    if all(abs(given / whole - 1) > _ROUNDED for whole in (1, 100)):
        total = f"{given:g}" if given > _MOST_PARTS else _percent(given)
        said.append(f"The shares sum to {total}, scaled to 100 %: the answer is about these users.")
    if unknown:
        said.append(f"No measurement is stored of {few_of(unknown, _NAMED)}.")
    if split:
        said.append(f"The share of {few_of(split, _NAMED)} is split evenly over several platforms.")
    return tuple(said)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _of_gap(answer: PairAnswer) -> tuple[str, ...]:
    if answer.gap_kept is None or answer.here.ratio is None:
        return ()
    needed = (
        f"no gap up to {_LARGEST_GAP} is kept in 95 %"
        if answer.gap_needed is None or answer.gap_needed > _LARGEST_GAP
        else f"for 95 % it takes {answer.gap_needed:.2f}"
    )
    where = "here" if answer.origin == Origin.MEASURED else f"on {answer.here.label}"
    return (
        f"A gap of {answer.here.ratio:.2f} {where} "
        f"is kept in {_percent(answer.gap_kept)} of pairs of models; {needed}.",
    )


def _next(answer: PairAnswer) -> tuple[str, ...]:
    step = answer.next_step
    if step is None:
        return ()
    what = "both"
    if step.row.order is Order.UNDECIDED:
        what = f"{count_of(step.effort.n_processes, 'more repeat')} of both"
    again = " again" if step.row.order in (Order.DOUBTFUL, *_UNLIKE) else ""
    about = [f"{_percent(step.share)} of the {'users' if answer.users else 'platforms'}"]
    if step.effort.minutes:
        about.append(f"about {_time(step.effort.minutes)}")
    where = step.row.label + ("" if step.is_own else ", if you have one")
    return (f"To settle most, measure {what}{again} on {where} ({', '.join(about)}).",)


def _alike(answer: PairAnswer) -> tuple[str, ...]:
    """That devices without any row, as that of the next step, differ by their shares alone."""
    n = sum(one.order is Order.NOT_MEASURED and not one.device for one in answer.targets)
    if answer.next_step is None or answer.next_step.row.device or n < 2:
        return ()
    by = "they differ by their shares of users alone" if answer.users else "any of them will do"
    return (f"Nothing is stored of {n} devices: they are expected to be alike, so {by}.",)


def _time(minutes: float) -> str:
    if minutes < 1:
        return f"{max(round(60 * minutes), 1)} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"

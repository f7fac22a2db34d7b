"""The answer about two models: their order on each platform, and what it means for users."""

import math
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

import numpy as np
from scipy import special

from fleetrank.analysis.arrays.bootstrap import percentile_interval
from fleetrank.analysis.arrays.kept_order import KeptCurve
from fleetrank.analysis.labels import KEY, PARTS
from fleetrank.foundation.errors import count_of, few_of, nearest
from fleetrank.foundation.inputs import IMAGE
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
    A_FIRST = "a first"
    """The interval is above 1, but no order is shown here that this one could keep."""
    B_FIRST = "b first"
    """The same, below 1."""
    MIXED = "mixed"
    """Of a device: kept in some of its settings, reversed in others, or a first and b first."""


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
_A_AHEAD, _B_AHEAD = (Order.KEPT, Order.A_FIRST), (Order.REVERSED, Order.B_FIRST)
_WITHOUT_HERE = dict(zip((Order.KEPT, Order.REVERSED), (Order.A_FIRST, Order.B_FIRST), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class UserShare:
    """What the choice means for users, whose devices have shares.

    Attributes:
        faster, low, high: share of users for whom A is the faster one, with a 95 % interval.
        shown_faster, shown_slower: share of users whose device measured that.
        expected: share of users whose device has a probability only, and `expected_faster` of them.
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
    shown_faster: float
    shown_slower: float
    expected: float
    expected_faster: float
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
    """Processes of each of the two models, and how long they take together, if that is known."""

    n_processes: int
    minutes: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """What settles most per minute, and the share of users, or of platforms, it has.

    Attributes:
        is_own: the device is registered, or was measured here; another one is named if none is.
        command: measures it; `None` for a device of others, and where only a file of a sweep can
            say the settings.
    """

    row: PairOrder
    effort: Effort
    is_own: bool
    command: str | None = None
    share: float = 0.0


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


def relative_to_here(answer: PairAnswer) -> PairAnswer:
    """The answer without kept and reversed orders, if none is shown here that they could be of.

    Of planted pairs with five repeats, 9 % of `reversed` were wrong, and 0.6 % where here is shown.
    """
    if is_shown(answer.here, answer.margin):
        return answer
    targets = (
        replace(one, order=_WITHOUT_HERE.get(one.order, one.order)) for one in answer.targets
    )
    return replace(answer, targets=tuple(targets))


def with_users(
    answer: PairAnswer, found: PlatformShares, candidates: Iterable[NextStep], seed: int
) -> PairAnswer:
    """Adds what the choice means for users, and what to measure next.

    Args:
        answer: has a row for each platform key of the shares.
        found: shares of users; without any, all targets weigh alike.
        candidates: the open targets, or here, if nothing is shown here.
        seed: of the draws.
    """
    keys = [one.platform_key for one in answer.targets]
    shares = found.shares or dict.fromkeys(keys, 1 / max(len(keys), 1))
    steps = [
        replace(one, share=shares.get(one.row.platform_key, float(one.row.order is Order.HERE)))
        for one in (candidates if found.shares else _changing(answer, candidates))
    ]
    return replace(
        answer,
        next_step=_best_step(steps),
        users=_user_share(answer, found, seed) if found.shares else None,
    )


def _changing(answer: PairAnswer, candidates: Iterable[NextStep]) -> Iterator[NextStep]:
    """Those of which some order gives another verdict than the present one, and here."""
    devices = {one.device for one in by_device(answer.targets)}
    known = dict[str, bool]()
    for one in candidates:
        # Devices without an order are alike, and there may be thousands.
        key = one.row.platform_key if one.row.device in devices else ""
        if key not in known:
            known[key] = one.row.order is Order.HERE or _can_change(answer, one.row)
        if known[key]:
            yield one


def _can_change(answer: PairAnswer, one: PairOrder) -> bool:
    others = [row for row in answer.targets if row.platform_key != one.platform_key]
    measured = replace(one, device=one.device or one.platform_key)
    rows = (replace(measured, order=order) for order in (Order.KEPT, Order.REVERSED, Order.EQUAL))
    answers = (answer, *(replace(answer, targets=(*others, row)) for row in rows))
    return len({_verdict(one).partition(":")[0] for one in answers}) > 1


def _best_step(steps: Sequence[NextStep]) -> NextStep | None:
    """The step that settles most of its share per minute; `None` if none settles anything.

    Of the user's own devices, if one of them is open. One whose time is not known counts as the
    median one.
    """
    known = [one.effort.minutes for one in steps if one.effort.minutes]
    usual = float(np.median(known)) if known else 1.0
    gains = [one.share * _openness(one.row) / (one.effort.minutes or usual) for one in steps]
    gain, step = max(
        zip(gains, steps, strict=True),
        key=lambda one: (one[0] > 0, one[1].is_own, one[1].row.order in _UNLIKE, one[0]),
        default=(0.0, None),
    )
    return step if gain > 0 else None


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
    if one.order in (Order.HERE, Order.UNDECIDED, *_UNLIKE) or not one.is_open:
        return float(one.is_open or one.order is Order.HERE)
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
    faster = (*_A_AHEAD, Order.HERE) if is_shown(answer.here, answer.margin) else _A_AHEAD
    said = [(share, p) for key, share in shares.items() if (p := rows[key].probability) is not None]
    lost = sum(share * _lost(rows[key]) for key, share in measured.items())
    return UserShare(
        faster=float(weights @ chances),
        low=float(low),
        high=float(high),
        shown_faster=sum(shares[key] for key in shares if rows[key].order in faster),
        shown_slower=sum(shares[key] for key in shares if rows[key].order in _B_AHEAD),
        expected=sum(share for share, _ in said),
        expected_faster=sum(share * p for share, p in said),
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
    if one.order in (*_A_AHEAD, *_B_AHEAD):
        return float(one.order in _A_AHEAD)
    if one.probability is not None:
        return one.probability
    if one.ratio is None or one.low is None or one.high is None or one.order in _UNLIKE:
        return 0.5
    if one.low == one.high:
        return 0.5 if one.ratio == 1 else float(one.ratio > 1)
    error = math.log(one.high / one.low) / 2 / _Z
    return float(special.ndtr(math.log(one.ratio) / error))


def _lost(one: PairOrder) -> float:
    if one.order not in _B_AHEAD or one.value_a is None or one.value_b is None:
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
        _next(answer),
        _alike(answer),
    )
    return tuple(sentence for part in parts for sentence in part)


_MEASURED = (
    Order.KEPT, Order.REVERSED, Order.A_FIRST, Order.B_FIRST, Order.EQUAL, Order.UNDECIDED,
    *_UNLIKE,
)  # fmt: skip
_OF_DEVICE = (
    Order.REVERSED, Order.B_FIRST, Order.REVERSED_UNLIKE, Order.KEPT, Order.A_FIRST,
    Order.KEPT_UNLIKE, Order.UNDECIDED, Order.EQUAL,
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
        if found >= {Order.KEPT, Order.REVERSED} or found >= {Order.A_FIRST, Order.B_FIRST}:
            return Order.MIXED
        return next(one for one in _OF_DEVICE if one in found)

    @property
    def having(self) -> tuple[PairOrder, ...]:
        """The settings that have the order of the device, or the opposite one; the worst first."""
        wanted = _B_AHEAD if self.order is Order.MIXED else (self.order,)
        some = (row for row in self.rows if row.order in wanted)
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


def is_shown(here: PairOrder, margin: float) -> bool:
    """Whether the platform where the question is asked shows that A is the faster one."""
    least = 1.0 if here.low is not None else 1 + max(margin, SINGLE_MARGIN)
    return here.ratio is None or (here.low or here.ratio) > least


def _verdict(answer: PairAnswer) -> str:
    here, words = answer.here, QUANTITIES[answer.quantity]
    said = words.ratio.format(a=here.model_a, b=here.model_b, ratio=here.ratio)
    is_own = answer.origin == Origin.MEASURED
    place, label = ("here", f"; {here.label}") if is_own else (f"on {here.label}", "")
    if here.low is None:
        said += f" {place} (one value each, no interval{label})"
    else:
        said += f" {place} ({here.low:.2f} to {here.high:.2f}, {_processes(here)}{label})"
    if not is_shown(answer.here, answer.margin):
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


def _worded(order: Order, answer: PairAnswer) -> str:
    """How a sentence begins that says where an order was found."""
    ahead = {Order.A_FIRST: answer.here.model_a, Order.B_FIRST: answer.here.model_b}
    if order not in ahead:
        return order
    return f"{ahead[order]} {QUANTITIES[answer.quantity].better}"


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
            parts.append(f"{_worded(order, answer)} in {_listed(one.having)}")
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
            word = _worded(order, answer)
            said.append(f"{word.capitalize() if word == order else word} on {len(some)}")
            said[-1] += "." if order in _A_AHEAD else f" ({named})."
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
    """What was measured on their devices, then what is expected on the others, and the cost."""
    users = answer.users
    if users is None:
        return ()
    a, better = answer.here.model_a, QUANTITIES[answer.quantity].better
    said = ["Of your users, none has a device that measured both."]
    if users.measured:
        open_ = users.measured - users.shown_faster - users.shown_slower
        said = [
            f"Of your users, {_percent(users.measured)} have a device that measured both: {a} "
            f"{better} for {_percent(users.shown_faster)}, not for {_percent(users.shown_slower)}"
            + (f", undecided for {_percent(open_)}." if open_ > _ROUNDED else ".")
        ]
    if users.expected > _ROUNDED:
        both = (one for one in (answer.here, *answer.targets) if one.value_a is not None)
        devices = count_of(len({one.device for one in both}), "device")
        said.append(
            f"For {_percent(users.expected)} it is expected, weakly, from {devices} of another "
            f"kind: {a} {better} for {_percent(users.expected_faster)} of all."
        )
    if (unknown := 1 - users.measured - users.expected) > _ROUNDED:
        said.append(f"For {_percent(unknown)} nothing is known.")
    said.append(
        f"Together: {_percent(users.faster)} ({_percent(users.low)} to {_percent(users.high)})"
        + (f"; {a} costs {users.cost:.3g} {answer.here.unit} on average." if users.cost else ".")
    )
    return (" ".join((*said, *users.notes)),)


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


def gap_sentences(answer: PairAnswer) -> tuple[str, ...]:
    """How often an order with this gap is kept; empty if it is not known."""
    if answer.gap_kept is None or answer.here.ratio is None:
        return ()
    needed = (
        f"No factor up to {_LARGEST_GAP} gives 95 %."
        if answer.gap_needed is None or answer.gap_needed > _LARGEST_GAP
        else f"From a factor of {answer.gap_needed:.2f} on, 95 % keep it."
    )
    where = "here" if answer.origin == Origin.MEASURED else f"on {answer.here.label}"
    return (
        f"Two models that differ by a factor of {answer.here.ratio:.2f} {where} have the same "
        f"order on another device in {_percent(answer.gap_kept)} of pairs. {needed}",
    )


def _next(answer: PairAnswer) -> tuple[str, ...]:
    """The command that settles most and how long it takes, or which device would."""
    step = answer.next_step
    if step is None:
        return ()
    share = f"{_percent(step.share)} of the {'users' if answer.users else 'platforms'}"
    if not step.is_own:
        return (
            f"Still open: {step.row.label} ({share}), which is not a device of this workspace.",
        )
    minutes = step.effort.minutes
    about = f", about {_time(minutes)}" if minutes else ""
    where = "here" if step.row.order is Order.HERE else f"{step.row.label}, {share}"
    what = f"`{step.command}`" if step.command else "measure both with a file of a sweep"
    return (f"Next{about}: {what} ({where}).",)


_OF_COMMANDS = {"mode": "eager", "batch": "1", "options": "{}", "axes": ""}
"""What a command measures; a platform with another value needs a file of a sweep."""
_USUAL_BACKENDS = ("cpu", "xnnpack", "cuda")
"""Each is that of a runtime if none is named, on processors and on GPUs."""


def measuring_command(row: PairOrder, n: int, *, takes_turns: bool, workload: str) -> str | None:
    """The command that measures both models on a platform of this machine, or of its devices.

    Args:
        row: `platform_key` is the name of a device without any row.
        n: processes of each model.
        takes_turns: whether models of this device can take turns.
        workload: of the session.

    Returns:
        `None` if options of the command cannot name the platform's settings.
    """
    found = KEY.fullmatch(row.platform_key)
    if found is None and "/" in row.platform_key:
        return None
    at: dict[str, str] = dict(zip(PARTS, found.groups(default=""), strict=True)) if found else {}
    if any(at.get(name, value) != value for name, value in _OF_COMMANDS.items()):
        return None
    precision = at.get("precision", "any")
    models = [
        name if ":" in name or precision in ("any", "fp32") else f"{name}:{precision}"
        for name in (row.model_a, row.model_b)
    ]
    is_ab = takes_turns and at.get("backend") in _USUAL_BACKENDS
    named = {name: at[name] for name in at if name in ("runtime", "backend", "threads")}
    named |= {"workload": workload, "rounds" if is_ab else "repeats": str(n)}
    usual = {
        "threads": ("1", "?"), "workload": (str(IMAGE),), "rounds": ("10",), "repeats": ("5",),
        "backend": _USUAL_BACKENDS if is_ab else (),
    }  # fmt: skip
    named = {name: value for name, value in named.items() if value not in usual.get(name, ())}
    if (device := at.get("device", row.platform_key)) != "local-cpu":
        named["device"] = device
    options = (word for name, value in named.items() for word in (f"--{name}", value))
    return shlex.join(["fleetrank", "ab" if is_ab else "run", *models, *options])


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

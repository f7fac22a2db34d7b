"""The answer about two models, and its sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fleetrank.analysis.arrays.kept_order import KeptCurve
from fleetrank.analysis.labels import KEY, PARTS
from fleetrank.analysis.statistics.pairs.pair_orders import (
    A_AHEAD,
    MEASURED_ORDERS,
    SINGLE_MARGIN,
    UNLIKE,
    UNLIKE_ORDERS,
    WITHOUT_HERE,
    Order,
    PairOrder,
    by_device,
    order_here,
)
from fleetrank.analysis.statistics.pairs.pair_quantities import QUANTITIES
from fleetrank.analysis.statistics.pairs.pair_users import ROUNDED, UserShare, percent
from fleetrank.foundation.vocabulary import Origin
from fleetrank.foundation.wording import count_of

_NAMED = 3
"""Platforms named in a sentence."""


_LARGEST_GAP = 100
"""Beyond it a gap is an extrapolation: models of one use differ less."""


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
    if order_here(answer.here, answer.margin) is Order.KEPT:
        return answer
    targets = (replace(one, order=WITHOUT_HERE.get(one.order, one.order)) for one in answer.targets)
    return replace(answer, targets=tuple(targets))


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


_NEARLY_ALL = 0.9
"""Share of the other devices from which on the answer is yes or no."""


def verdict_word(answer: PairAnswer) -> str:
    """How the answer begins, such as Yes, Not everywhere or Undecided here."""
    return _verdict(answer).partition(":")[0]


def _verdict(answer: PairAnswer) -> str:
    here, words = answer.here, QUANTITIES[answer.quantity]
    said = words.ratio.format(a=here.model_a, b=here.model_b, ratio=here.ratio)
    is_own = answer.origin == Origin.MEASURED
    place, label = ("here", f"; {here.label}") if is_own else (f"on {here.label}", "")
    if here.low is None:
        said += f" {place} (one value each, no interval{label})"
    else:
        said += f" {place} ({here.low:.2f} to {here.high:.2f}, {_processes(here)}{label})"
    found = order_here(here, answer.margin)
    if found is Order.EQUAL:
        return f"Equal {'here' if is_own else 'there'} within {percent(answer.margin)}: {said}."
    if found is Order.UNDECIDED:
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
        {Order.UNDECIDED, *UNLIKE_ORDERS} if unless == "undecided" else set()
    )
    is_clear = unless == "reversed" or order_here(answer.here, answer.margin) != Order.UNDECIDED
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
    for order in (*MEASURED_ORDERS, Order.MIXED):
        some = [one for one in devices if one.order is order]
        some.sort(key=lambda one: one.having[0].ratio or 1.0)
        named = "; ".join([one.said for one in some[:_NAMED]] + ["..."] * (len(some) > _NAMED))
        if some:
            word = _worded(order, answer)
            said.append(f"{word.capitalize() if word == order else word} on {len(some)}")
            said[-1] += "." if order in A_AHEAD else f" ({named})."
    rows = [row for one in devices for row in one.rows]
    if bare := sum(one.low is None for one in rows):
        is_every = bare == len(rows)
        said.append(
            f"No repeats are stored for {'any' if is_every else bare} of them: there, only "
            f"differences above {percent(max(answer.margin, SINGLE_MARGIN))} count."
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
            f"Of your users, {percent(users.measured)} have a device that measured both: {a} "
            f"{better} for {percent(users.shown_faster)}, not for {percent(users.shown_slower)}"
            + (f", undecided for {percent(open_)}." if open_ > ROUNDED else ".")
        ]
    if users.expected > ROUNDED:
        both = (one for one in (answer.here, *answer.targets) if one.value_a is not None)
        devices = count_of(len({one.device for one in both}), "device")
        said.append(
            f"For {percent(users.expected)} it is expected, weakly, from {devices} of another "
            f"kind: {a} {better} for {percent(users.expected_faster)} of all."
        )
    if (unknown := 1 - users.measured - users.expected) > ROUNDED:
        said.append(f"For {percent(unknown)} nothing is known.")
    said.append(
        f"Together: {percent(users.faster)} ({percent(users.low)} to {percent(users.high)})"
        + (f"; {a} costs {users.cost:.3g} {answer.here.unit} on average." if users.cost else ".")
    )
    return (" ".join((*said, *users.notes)),)


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
        f"order on another device in {percent(answer.gap_kept)} of pairs. {needed}",
    )


def _next(answer: PairAnswer) -> tuple[str, ...]:
    """The command that settles most and how long it takes, or which device would."""
    step = answer.next_step
    if step is None:
        return ()
    share = f"{percent(step.share)} of the {'users' if answer.users else 'platforms'}"
    if not step.is_own:
        return (
            f"Still open: {step.row.label} ({share}), which is not a device of this workspace.",
        )
    minutes = step.effort.minutes
    about = f", about {_time(minutes)}" if minutes else ""
    where = "here" if step.row.order is Order.HERE else f"{step.row.label}, {share}"
    what = f"`{step.command}`" if step.command else "measure both with a file of a sweep"
    return (f"Next{about}: {what} ({where}).",)


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

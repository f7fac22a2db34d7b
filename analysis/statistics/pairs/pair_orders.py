"""What is known of the order of two models: on a platform, and on a device in all its settings."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

SINGLE_MARGIN = 0.15
"""Two single values closer than this may be of equal models: processes of one device differ by 4 to
6 %, so that 95 % of such ratios lie within 1.96 x 1.41 x 5 % = 14 %."""
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
        return self.order in (Order.NOT_MEASURED, Order.DOUBTFUL, Order.UNDECIDED, *UNLIKE_ORDERS)

    @property
    def is_unlike(self) -> bool:
        """Whether its figures, or the orders that were measured there, are unlike the others."""
        return self.reason is not None and self.reason.startswith(UNLIKE)


UNLIKE_ORDERS = (Order.KEPT_UNLIKE, Order.REVERSED_UNLIKE)
A_AHEAD, B_AHEAD = (Order.KEPT, Order.A_FIRST), (Order.REVERSED, Order.B_FIRST)
WITHOUT_HERE = dict(zip((Order.KEPT, Order.REVERSED), (Order.A_FIRST, Order.B_FIRST), strict=True))
MEASURED_ORDERS = (
    Order.KEPT, Order.REVERSED, Order.A_FIRST, Order.B_FIRST, Order.EQUAL, Order.UNDECIDED,
    *UNLIKE_ORDERS,
)  # fmt: skip
LISTED = (
    Order.HERE, Order.REVERSED, Order.B_FIRST, Order.REVERSED_UNLIKE, Order.UNDECIDED, Order.EQUAL,
    Order.KEPT_UNLIKE, Order.A_FIRST, Order.KEPT,
)  # fmt: skip
"""How lists of platforms are sorted, here first; the others follow."""
OF_DEVICE = (
    Order.REVERSED, Order.B_FIRST, Order.REVERSED_UNLIKE, Order.KEPT, Order.A_FIRST,
    Order.KEPT_UNLIKE, Order.UNDECIDED, Order.EQUAL,
)  # fmt: skip
"""A device has the first of these orders that one of its settings has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOrder:
    """Two models on a device in all its settings: runtimes, precisions, threads.

    Attributes:
        rows: its platforms that measured both.
        order: mixed, or the first of `OF_DEVICE`.
    """

    device: str
    rows: tuple[PairOrder, ...]

    @property
    def order(self) -> Order:
        """See the class."""
        found = {row.order for row in self.rows}
        if found >= {Order.KEPT, Order.REVERSED} or found >= {Order.A_FIRST, Order.B_FIRST}:
            return Order.MIXED
        return next(one for one in OF_DEVICE if one in found)

    @property
    def having(self) -> tuple[PairOrder, ...]:
        """The settings that have the order of the device, or the opposite one; the worst first."""
        wanted = B_AHEAD if self.order is Order.MIXED else (self.order,)
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
        if one.order in MEASURED_ORDERS:
            of_device.setdefault(one.device, []).append(one)
    return tuple(DeviceOrder(device=name, rows=tuple(some)) for name, some in of_device.items())


def order_here(here: PairOrder, margin: float) -> Order:
    """What the platform where the question is asked shows: A is faster, both are equal, or neither.

    The rule is that of every platform; A is the one with the smaller figure.
    """
    if here.ratio is None:
        return Order.KEPT
    if here.low is None or here.high is None:
        is_apart = here.ratio > 1 + max(margin, SINGLE_MARGIN)
        return Order.KEPT if is_apart else Order.UNDECIDED
    if 1 / (1 + margin) < here.low and here.high < 1 + margin:
        return Order.EQUAL
    return Order.KEPT if here.low > 1 else Order.UNDECIDED

"""The answer about two models as the page draws it: a sentence, and a dot for each platform."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.pair_answer import Order, PairAnswer, PairOrder, pair_sentences
from fleetrank.analysis.statistics.pairs import main_pair

_MOST_OPEN = 20
"""Rows before the others are folded: one screen."""
_NEAREST, _FURTHEST = math.log(1.25), math.log(8)
"""The ends of the axis are at least and at most so far from equal."""
_FIRST = (Order.HERE, Order.REVERSED, Order.UNDECIDED, Order.EQUAL, Order.KEPT)
_PLACES = {order: at for at, order in enumerate(_FIRST)}
"""Of the rows; the other orders come last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """One platform; positions are per cent of the axis, from A slower to A faster.

    Attributes:
        at: of the dot, at an end if the ratio is beyond the axis; `None` without a ratio.
        low, width: of the interval; `None` without one.
    """

    label: str
    order: str
    ratio: str
    detail: str
    at: float | None
    low: float | None
    width: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairView:
    """What the template draws.

    Attributes:
        band_low, band_width: where the two count as equal, in per cent of the axis.
        end: the ratio at both ends of the axis, as text.
    """

    model_a: str
    model_b: str
    verdict: str
    sentences: tuple[str, ...]
    open_rows: tuple[PairRow, ...]
    folded_rows: tuple[PairRow, ...]
    band_low: float
    band_width: float
    end: str


def pair_of(session: Session) -> PairView | None:
    """The pair that matters most; `None` where none can be compared: the tables say why."""
    try:
        answer = main_pair(session)
    except AnalysisError:
        return None
    return None if answer is None else pair_view(answer)


def pair_view(answer: PairAnswer) -> PairView:
    """The first rows are here and where the order is reversed; then from the lowest ratio on."""
    listed = sorted(
        (answer.here, *answer.targets),
        key=lambda one: (_PLACES.get(one.order, len(_FIRST)), one.ratio or 1.0, one.label),
    )
    reach = _reach(listed)
    rows = [_row(one, reach) for one in listed]
    margin = math.log1p(answer.margin)
    verdict, *sentences = pair_sentences(answer)
    return PairView(
        model_a=answer.here.model_a,
        model_b=answer.here.model_b,
        verdict=verdict,
        sentences=tuple(sentences),
        open_rows=tuple(rows[:_MOST_OPEN]),
        folded_rows=tuple(rows[_MOST_OPEN:]),
        band_low=_percent(-margin, reach),
        band_width=_percent(margin, reach) - _percent(-margin, reach),
        end=f"{math.exp(reach):.2g}",
    )


def _reach(rows: Sequence[PairOrder]) -> float:
    """Half of the axis, as a logarithm: every ratio that is neither doubtful nor very large."""
    ends = [
        abs(math.log(end))
        for one in rows
        if one.order is not Order.DOUBTFUL
        for end in (one.ratio, one.low, one.high)
        if end
    ]
    return 1.05 * min(max(_NEAREST, *ends), _FURTHEST)


def _percent(log: float, reach: float) -> float:
    return round(50 + 50 * min(max(log / reach, -1.0), 1.0), 2)


def _row(one: PairOrder, reach: float) -> PairRow:
    log = None if one.ratio is None else math.log(one.ratio)
    low = high = None
    if one.low and one.high:
        low, high = (_percent(math.log(end), reach) for end in (one.low, one.high))
    return PairRow(
        label=one.label,
        order=one.order.value,
        ratio="" if one.ratio is None else f"{one.ratio:.2f}",
        detail=_detail(one),
        at=None if log is None else _percent(log, reach),
        low=low,
        width=None if low is None or high is None else round(high - low, 2),
    )


def _detail(one: PairOrder) -> str:
    if one.probability is not None:
        return f"faster with probability {one.probability:.2f}"
    if one.low is not None and one.high is not None:
        return f"{one.low:.2f} to {one.high:.2f}"
    return "" if one.order is not Order.DOUBTFUL else "left out"

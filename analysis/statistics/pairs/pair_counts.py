"""All pairs of one model, or all that are reversed somewhere, and the table of both."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from fleetrank.analysis.arrays.kept_order import Ints
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.pairs.pair_fleet import PairFleet, fleet_of
from fleetrank.analysis.statistics.pairs.pair_orders import Order
from fleetrank.analysis.statistics.pairs.pairs import faster, pair_table, pairs_explanation
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.vocabulary import Origin
from fleetrank.foundation.wording import count_of

MAX_LISTED = 5000
"""Pairs of models compared in one list: all pairs of a hundred models."""
_MAX_RATIOS = 200_000
"""Ratios computed at once: 1.6 MB an array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCount:
    """One pair of models over all platforms; model A is the faster one here.

    Attributes:
        kept, reversed, equal, undecided: other platforms that measured both, by their order. None
            is kept or reversed if no order is shown here.
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


def pair_counts(session: Session, a: str | None = None) -> tuple[tuple[PairCount, ...], int]:
    """Each pair of a model, most often reversed first; without a model all that are reversed.

    Also gives the number of pairs that are left out, though some platform has them in the opposite
    order: without a model, `MAX_LISTED` pairs are compared.

    Raises:
        NoDataError: the model has no row, or no chosen platform measured two models.
    """
    fleet = fleet_of(session, [a or ""])
    row = None if a is None else fleet.row_of(a)
    here = fleet.common_here()
    targets = np.array(fleet.chosen_targets(here), dtype=np.int64)
    known = np.flatnonzero(fleet.known(here)).tolist()
    n_left_out = 0
    if row is None:
        pairs = [*combinations(known, 2)]
        if len(pairs) > MAX_LISTED:
            pairs, n_left_out = _most_opposite(fleet, pairs, here, targets)
    else:
        pairs = [(row, other) for other in known if other != row] if row in known else []
    counts = _counts(fleet, pairs, here, targets)
    shown = [one for one in counts if a is not None or one.reversed]
    return tuple(sorted(shown, key=lambda one: (-one.reversed, one.ratio or 1.0))), n_left_out


def _most_opposite(
    fleet: PairFleet, pairs: Sequence[tuple[int, int]], here: int, targets: Ints
) -> tuple[list[tuple[int, int]], int]:
    """The `MAX_LISTED` pairs whose order is the opposite most often, and how many others are so.

    Differences above the margin count first. A pair whose order is nowhere the opposite cannot be
    reversed.
    """
    columns = fleet.logs[:, [here, *targets.tolist()]]
    beyond, opposite = [], []
    for some in np.array_split(np.array(pairs), len(pairs) // MAX_LISTED + 1):
        logs = columns[some[:, 1]] - columns[some[:, 0]]
        others = np.where(logs[:, :1] < 0, -1, 1) * logs[:, 1:]
        beyond.append((others < -math.log1p(fleet.margin)).sum(axis=1))
        opposite.append((others < 0).sum(axis=1))
    n_opposite = np.concatenate(opposite)
    ranked = np.lexsort((-n_opposite, -np.concatenate(beyond)))
    left_out = n_opposite[ranked[MAX_LISTED:]] > 0
    return [pairs[at] for at in sorted(ranked[:MAX_LISTED].tolist())], int(left_out.sum())


def _counts(
    fleet: PairFleet, pairs: Sequence[tuple[int, int]], here: int, targets: Ints
) -> Iterator[PairCount]:
    """The count of each pair, in their order."""
    columns = np.array([here, *targets.tolist()])
    step = max(1, _MAX_RATIOS // columns.size)
    for start in range(0, len(pairs), step):
        some = np.array([fleet.faster_first(rows, here) for rows in pairs[start : start + step]])
        shape = len(some), columns.size
        a, b = np.repeat(some, columns.size, axis=0).T
        found = fleet.orders_of((a, b), np.tile(columns, len(some)))
        logs, lows, highs, orders = (one.reshape(shape) for one in found)
        orders[~fleet.has_both(some)[:, columns]] = ""
        is_shown = orders[:, :1] == Order.KEPT
        orders[~is_shown & (orders != Order.EQUAL) & (orders != "")] = Order.UNDECIDED
        n_unlike = fleet.n_unlike(some, targets)
        reversed_logs = np.where(orders == Order.REVERSED, logs, 0.0)
        for at, rows in enumerate(some.tolist()):
            number = Counter(orders[at, 1:].tolist())
            worst = int(reversed_logs[at].argmin()) if number[Order.REVERSED] else None
            low, high = (math.exp(one[at, 0]) for one in (lows, highs))
            yield PairCount(
                model_a=fleet.panel.models[rows[0]],
                model_b=fleet.panel.models[rows[1]],
                ratio=math.exp(logs[at, 0]),
                low=low if math.isfinite(low) else None,
                high=high if math.isfinite(high) else None,
                kept=number[Order.KEPT],
                reversed=number[Order.REVERSED],
                equal=number[Order.EQUAL],
                undecided=number[Order.UNDECIDED] + int(n_unlike[at]),
                reversed_on=(
                    None if worst is None else fleet.labels[fleet.panel.keys[columns[worst]]]
                ),
                worst_ratio=None if worst is None else math.exp(reversed_logs[at, worst]),
            )


def pairs_table(session: Session) -> Table:
    """Two models on every platform, or the pairs whose order is reversed somewhere.

    Settings: `model_a` and `model_b` name the models, `margin` the largest difference of no
    interest, `quantity` what is compared. `source` chooses where the question is asked; `target`,
    runtime and precision choose the other platforms.

    Raises:
        AnalysisError, NoDataError: as `faster` and `pair_counts`.
    """
    a, b = (setting(session.selection, name, "") for name in ("model_a", "model_b"))
    if a and b:
        return pair_table(faster(session, a, b))
    counts, n_left_out = pair_counts(session, a or b or None)
    cut = (
        f"Only {MAX_LISTED} pairs of models are compared, those with the opposite order on most "
        f"platforms; {count_of(n_left_out, 'further pair')} may be reversed somewhere: name one "
        "model, or choose some with `fleetrank report show pairs` with `model=NAME`."
    )
    fleet = fleet_of(session, (a, b))
    here = fleet.common_here()
    is_own = fleet.facts["origin"][here] == Origin.MEASURED
    by = "" if fleet.quantity.name == "latency" else f", by {fleet.quantity.name}"
    return Table.of(
        PairCount,
        counts,
        title=f"Orders of {a or b} and others{by}" if a or b else f"Orders that are reversed{by}",
        notes=(
            *fleet.notes(a, b),
            f"Here: {fleet.labels[fleet.panel.keys[here]]}"
            + ("." if is_own else ", as no two models were measured here."),
            *((cut,) if n_left_out else ()),
        ),
        explanation=pairs_explanation(fleet.margin),
    )

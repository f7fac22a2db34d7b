"""Which of several models is the fastest on every platform, and for which share of users."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.two_samples import Verdict
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.labels import published_names
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.pairs.pair_fleet import PairFleet, fleet_of
from fleetrank.analysis.statistics.pairs.pair_orders import Order
from fleetrank.analysis.statistics.pairs.pair_users import platform_shares
from fleetrank.analysis.stored.selection import setting
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.wording import count_of, few_of

_MOST_OTHERS = 3
"""Models or platforms that a row or a sentence names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FastestRow:
    """The fastest of some models on a platform that measured two or more of them.

    Attributes:
        value: its figure.
        next: the second; `ratio` is its figure over that of the fastest.
        low, high: 95 % interval of the ratio; `None` where no repeats show one.
        verdict: `faster` if it is shown to be faster than each other one, `same` if the next one is
            equal, else `undecided`.
        others: the models behind both, each with its ratio to the fastest; `None` without any.
        missing: models without a figure there, or with a doubtful one.
    """

    platform_key: str
    fastest: str
    value: float
    next: str
    ratio: float
    low: float | None
    high: float | None
    verdict: Verdict
    others: str | None
    missing: str | None


def _verdict(orders: npt.NDArray[np.str_]) -> Verdict:
    """Of the first model beside all others: one with few repeats may be behind it by chance."""
    if np.all(orders == Order.KEPT):
        return Verdict.FASTER
    return Verdict.SAME if orders[0] == Order.EQUAL else Verdict.UNDECIDED


def fastest(
    session: Session, users: Mapping[str, float] | None = None
) -> tuple[tuple[str, ...], Table]:
    """Which of some models is the fastest on each platform, in sentences and as a table.

    Its setting `models` names the models, which are all without it; target and runtime of the
    selection choose the platforms.

    Args:
        session: the rows to use.
        users: share of users by device or device model, as for `faster`.

    Raises:
        AnalysisError: a model was measured in several precisions, and none is named.
        NoDataError: a model has no row, or no platform measured two of them.
    """
    given = setting(session.selection, "models", "").split(",")
    names = [name for one in given if (name := one.strip())]
    fleet = fleet_of(session, names)
    rows = dict.fromkeys(fleet.row_of(name) for name in names) or range(len(fleet.panel.models))
    targets = fleet.targets().tolist()
    found = [one for at in targets if (one := _fastest(fleet, [*rows], at)) is not None]
    if not found:
        raise NoDataError(
            "no chosen platform measured two of them", "measure them with `fleetrank run`"
        )
    said = f" of {few_of(names, _MOST_OTHERS)}" if names else ""
    table = Table.of(
        FastestRow,
        found,
        title=f"The smallest {fleet.quantity.name} in {fleet.quantity.unit}{said}",
        notes=fleet.notes(*names),
        explanation=explained("pairs/fastest", {"margin": fleet.margin}),
    )
    table = replace(table, devices=published_names(session.frame))
    return tuple(_fastest_sentences(fleet, found, users or {})), table


def fastest_table(session: Session) -> Table:
    """The table of `fastest`, with its sentences as notes; raises its errors."""
    sentences, table = fastest(session)
    return replace(table, notes=(*table.notes, *sentences))


def _fastest(fleet: PairFleet, rows: Sequence[int], at: int) -> FastestRow | None:
    """A row of the table; `None` if fewer than two of the models have a figure there."""
    logs, names = fleet.logs[:, at], [*map(str, fleet.panel.models)]
    known = sorted((row for row in rows if math.isfinite(logs[row])), key=lambda row: logs[row])
    if len(known) < 2:
        return None
    best, *behind = known
    ratios, lows, highs, orders = fleet.orders_of((best, np.array(behind)), np.array([at]))
    has_interval = math.isfinite(lows[0])
    missing = [names[row] for row in rows if row not in known]
    said = [f"{names[row]} {math.exp(one):.2f}" for row, one in zip(behind, ratios, strict=True)]
    return FastestRow(
        platform_key=fleet.panel.keys[at],
        fastest=names[best],
        value=math.exp(logs[best]) / fleet.quantity.per_unit,
        next=names[behind[0]],
        ratio=math.exp(ratios[0]),
        low=math.exp(lows[0]) if has_interval else None,
        high=math.exp(highs[0]) if has_interval else None,
        verdict=_verdict(orders),
        others=few_of(said[1:], _MOST_OTHERS) or None,
        missing=few_of(missing, _MOST_OTHERS) or None,
    )


def _fastest_sentences(
    fleet: PairFleet, found: Sequence[FastestRow], users: Mapping[str, float]
) -> Iterator[str]:
    """Where each model is the fastest of all, and for which share of users."""
    whole = [one for one in found if one.missing is None]
    keys: dict[str, list[str]] = {}
    for one in whole:
        model = one.fastest if one.verdict is Verdict.FASTER else ""
        keys.setdefault(model, []).append(one.platform_key)
    undecided = keys.pop("", [])
    wins = sorted(keys.items(), key=lambda one: -len(one[1]))
    best = fleet.quantity.best
    said = [f"{model} {best} on {_counted(fleet, won)}" for model, won in wins]
    said += [f"undecided on {_counted(fleet, undecided)}"] if undecided else []
    if said:
        yield f"Of {count_of(len(whole), 'platform')} with all of them: {'; '.join(said)}."
    if n_part := len(found) - len(whole):
        yield f"On {count_of(n_part, 'platform')} only some of them are measured without doubt."
    if not users:
        return
    matched = platform_shares(fleet.named([one.platform_key for one in found]), users)
    parts = {model: sum(matched.shares.get(key, 0.0) for key in won) for model, won in wins}
    said = [f"{model} {best} for {100 * part:.0f} %" for model, part in parts.items() if part]
    if (rest := round(100 * (1 - sum(parts.values())))) > 0:
        said.append(f"undecided or not known for {rest} %")
    of_users = f"Of your users: {'; '.join(said)}."
    yield " ".join((of_users, *matched.notes))


def _counted(fleet: PairFleet, keys: Sequence[str]) -> str:
    """How many platforms, and some of them by name."""
    more = "; ..." if len(keys) > _MOST_OTHERS else ""
    return f"{len(keys)} ({'; '.join(fleet.labels[key] for key in keys[:_MOST_OTHERS])}{more})"

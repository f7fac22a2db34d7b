"""What the choice between two models means for users, whose devices have shares."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from fleetrank.analysis.arrays.bootstrap import percentile_interval
from fleetrank.analysis.statistics.pairs.pair_orders import (
    A_AHEAD,
    B_AHEAD,
    SINGLE_MARGIN,
    UNLIKE_ORDERS,
    Order,
    PairOrder,
    order_here,
)
from fleetrank.foundation.wording import few_of, nearest

_DRAWS = 4000
_NAMED = 3
"""Devices named in a sentence."""


Z = 1.959964
"""Standard normal deviations to each end of a 95 % interval."""


_MOST_PARTS = 2
"""A sum of shares above it is of percent, or of numbers of users."""


ROUNDED = 0.005
"""A sum of rounded shares differs from 100 % by so much."""


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


def user_share(
    here: PairOrder, targets: Sequence[PairOrder], margin: float, found: PlatformShares, seed: int
) -> UserShare:
    """Draws the order on each device, as often as it is so; the interval is over these draws."""
    rows = {one.platform_key: one for one in (here, *targets)}
    shares = found.shares
    weights, chances = np.array(
        [(share, _chance(rows[key], margin)) for key, share in shares.items()]
    ).T
    rng = np.random.default_rng(seed)
    low, high = percentile_interval((rng.random((_DRAWS, chances.size)) < chances) @ weights)
    measured = {key: share for key, share in shares.items() if rows[key].value_a is not None}
    total = sum(measured.values())
    faster = (*A_AHEAD, Order.HERE) if order_here(here, margin) is Order.KEPT else A_AHEAD
    said = [(share, p) for key, share in shares.items() if (p := rows[key].probability) is not None]
    lost = sum(share * _lost(rows[key]) for key, share in measured.items())
    return UserShare(
        faster=float(weights @ chances),
        low=float(low),
        high=float(high),
        shown_faster=sum(shares[key] for key in shares if rows[key].order in faster),
        shown_slower=sum(shares[key] for key in shares if rows[key].order in B_AHEAD),
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
    if one.order in (*A_AHEAD, *B_AHEAD):
        return float(one.order in A_AHEAD)
    if one.probability is not None:
        return one.probability
    if one.ratio is None or one.low is None or one.high is None or one.order in UNLIKE_ORDERS:
        return 0.5
    if one.low == one.high:
        return 0.5 if one.ratio == 1 else float(one.ratio > 1)
    error = math.log(one.high / one.low) / 2 / Z
    return float(special.ndtr(math.log(one.ratio) / error))


def _lost(one: PairOrder) -> float:
    if one.order not in B_AHEAD or one.value_a is None or one.value_b is None:
        return 0.0
    return one.value_a - one.value_b


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
    if all(abs(given / whole - 1) > ROUNDED for whole in (1, 100)):
        total = f"{given:g}" if given > _MOST_PARTS else percent(given)
        said.append(f"The shares sum to {total}, scaled to 100 %: the answer is about these users.")
    if unknown:
        said.append(f"No measurement is stored of {few_of(unknown, _NAMED)}.")
    if split:
        said.append(f"The share of {few_of(split, _NAMED)} is split evenly over several platforms.")
    return tuple(said)


def percent(share: float) -> str:
    """A share of users or platforms as a sentence has it."""
    return f"{100 * share:.0f} %"

"""What to measure next about two models, and the command that does it."""

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from fleetrank.analysis.labels import KEY, PARTS
from fleetrank.analysis.statistics.pairs.pair_answer import NextStep, PairAnswer, verdict_word
from fleetrank.analysis.statistics.pairs.pair_orders import (
    UNLIKE_ORDERS,
    Order,
    PairOrder,
    by_device,
)
from fleetrank.analysis.statistics.pairs.pair_users import PlatformShares, Z, user_share
from fleetrank.foundation.workload import IMAGE

_Z_OF_POWER = 0.841621
"""Standard normal deviation below which 80 % lie: the advised repeats settle 4 of 5 orders."""


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
    parts = answer.here, answer.targets, answer.margin
    users = user_share(*parts, found, seed) if found.shares else None
    return replace(answer, next_step=_best_step(steps), users=users)


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
    return len({verdict_word(one) for one in answers}) > 1


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
        key=lambda one: (one[0] > 0, one[1].is_own, one[1].row.order in UNLIKE_ORDERS, one[0]),
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
    needed = math.pi * variance * ((Z + _Z_OF_POWER) / gap) ** 2
    return max(math.ceil(needed) - min(one.n_a, one.n_b), 1)


def _openness(one: PairOrder) -> float:
    """1 where nothing is known, 0 where the order is: 4 p (1 - p) of its probability."""
    if one.order in (Order.HERE, Order.UNDECIDED, *UNLIKE_ORDERS) or not one.is_open:
        return float(one.is_open or one.order is Order.HERE)
    p = 0.5 if one.probability is None else one.probability
    return 4 * p * (1 - p)


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

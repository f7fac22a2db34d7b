"""The latencies from which the page answers about any two models, and its first answer."""

import math

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.figures import platform_labels
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.measured.verdicts import doubts_of
from fleetrank.analysis.statistics.pairs.pair_answer import (
    PairAnswer,
    conditions_of,
    pair_sentences,
)
from fleetrank.analysis.statistics.pairs.pair_evidence import Runs, stored_figures
from fleetrank.analysis.statistics.pairs.pair_orders import (
    LISTED,
    OF_DEVICE,
    SINGLE_MARGIN,
    WITHOUT_HERE,
    Order,
    PairOrder,
)
from fleetrank.analysis.statistics.pairs.pairs import main_pair
from fleetrank.analysis.stored.selection import MARGIN, margin_of
from fleetrank.foundation.units import NS_PER_MS

Json = dict[str, object]
_MOST_VALUES = 60_000
"""Latencies in the page for its questions: half a megabyte."""
_DIGITS = 4


def fleet_data(session: Session) -> Json:
    """What `templates/answer.js` needs.

    `ms` and `n` (processes) are by platform, then by model; a doubtful figure is null and listed in
    `doubts`; `unlike` ones count as undecided. `reach` is the half-width of the interval of a
    figure, as a logarithm: one for a platform, or a list by model. Without it, `single` is the
    least difference that counts. `runs` has every sweep of a platform with several. `main` is the
    answer about the pair that matters most; `a`, `b`, `here` and `target` are asked first.

    Raises:
        AnalysisError: nothing can be ranked.
    """
    panel, (doubts, unlike) = session.panel, doubts_of(session)
    selection = session.selection
    # The question may be asked on any runtime; the page has its own platforms only.
    is_part = (selection.runtime, selection.precision) != (None, None)
    of_page = session.narrowed(pl.col("platform_key").is_in(panel.keys)) if is_part else session
    answer = main_pair(of_page)
    labels = platform_labels(panel.platforms).names
    room = max(2, _MOST_VALUES // len(panel.models))
    column = {key: at for at, key in enumerate(panel.keys)}
    n_models = np.isfinite(panel.latency).sum(axis=0)
    asked = None if answer is None else answer.here.platform_key
    kept = sorted(labels, key=lambda key: (key != asked, -n_models[column[key]]))[:room]
    keys = [key for key in labels if key in kept]
    columns = [column[key] for key in keys]
    latency = panel.latency.copy()
    for model, key in doubts:
        latency[panel.models.index(model), column[key]] = np.nan
    names = [*map(str, panel.models)]
    unlike_at = ((names.index(model), column[key]) for model, key in unlike)
    found = stored_figures(session, unlike=unlike_at)
    here = int(np.argmax(np.isfinite(latency[:, columns]).sum(axis=0)))
    fastest = np.argsort(latency[:, columns[here]], kind="stable").tolist()
    a, b = fastest[0], fastest[min(1, len(names) - 1)]
    if answer is not None:
        here = keys.index(answer.here.platform_key)
        a, b = (names.index(name) for name in (answer.here.model_a, answer.here.model_b))
    return {
        "models": names,
        "platforms": [
            {"label": labels[key], "batch": panel.platforms["batch"][at],
             "device": panel.platforms["device_model"][at] or panel.platforms["device"][at],
             "conditions": conditions_of(key)}
            for key, at in zip(keys, columns, strict=True)
        ],
        "ms": [[_rounded(one) for one in latency[:, at] / NS_PER_MS] for at in columns],
        "n": [found.newest.n[:, at].tolist() for at in columns],
        "reach": [_reach(found.reach[:, at]) for at in columns],
        "runs": [_runs(found.runs[at]) if at in found.runs else None for at in columns],
        **{
            name: [
                [names.index(model), keys.index(key), said]
                for (model, key), said in of.items()
                if key in keys
            ]
            for name, of in (("doubts", doubts), ("unlike", unlike))
        },
        "margin": margin_of(selection, MARGIN),
        "single": SINGLE_MARGIN,
        "listed": [*LISTED],
        "of_device": [*OF_DEVICE],
        "without_here": WITHOUT_HERE,
        "main": None if answer is None else _answer(answer),
        "a": a,
        "b": b,
        "here": here,
        "target": _target(answer, keys, here),
    }  # fmt: skip


def _runs(runs: Runs) -> Json:
    """Every sweep of a platform as the page needs it: lists by sweep, then by model."""
    ms, reach = np.exp(runs.logs) / NS_PER_MS, runs.reach
    return {
        "ms": [[_rounded(one) for one in of_models] for of_models in ms.T],
        "reach": [[_rounded(one) for one in of_models] for of_models in reach.T],
        "n": runs.n.T.tolist(),
        "turns": runs.turns.T.tolist(),
        "between": runs.between[0],
    }


def _reach(of_models: Floats) -> float | list[float | None] | None:
    """One for all models, or a list where they differ."""
    rounded = [_rounded(one) for one in of_models.tolist()]
    if any(one != rounded[0] for one in rounded):
        return rounded
    return rounded[0]


def _rounded(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def _answer(answer: PairAnswer) -> Json:
    return {
        "sentences": pair_sentences(answer),
        "rows": [_row(one) for one in (answer.here, *answer.targets)],
    }


def _row(one: PairOrder) -> Json:
    detail = ""
    if one.order is Order.DOUBTFUL:
        detail = "left out"
    elif one.probability is not None:
        detail = f"faster with probability {one.probability:.2f}"
        if one.is_unlike:
            detail += f", {one.reason}"
    return {
        "label": one.label, "order": one.order.value, "detail": detail,
        "ratio": one.ratio, "low": one.low, "high": one.high,
    }  # fmt: skip


def _target(answer: PairAnswer | None, keys: list[str], here: int) -> int:
    """The platform that swaps the pair of the page, or another one."""
    swapped = (
        []
        if answer is None
        else [one.platform_key for one in answer.targets if one.order is Order.REVERSED]
    )
    others = [at for at in range(len(keys)) if at != here]
    return next((keys.index(key) for key in swapped if key in keys), next(iter(others), here))


def answer_sentences(fleet: Json | None) -> tuple[str, ...]:
    """The answer about the pair that matters most; empty without one."""
    main = None if fleet is None else fleet["main"]
    return tuple(main["sentences"]) if isinstance(main, dict) else ()


def is_of_pairs(fleet: Json | None) -> bool:
    """Whether two platforms can be compared."""
    platforms = None if fleet is None else fleet["platforms"]
    return isinstance(platforms, list) and len(platforms) > 1

"""Which models to measure on a new device, and which runs are not needed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.pareto import frontier, overlap
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.device_models import Profiles, profiles
from fleetrank.analysis.panel.panel import Panel
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.choices.next_models import (
    SPEED_VARIANCE,
    Left,
    choose,
    consensus,
    judge,
    rank_agreement,
)
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.wording import count_of

DRAWS = 50
"""Random sets of sources per target and size; the error of their mean is then about 1 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Errors of predicting one device from others, one entry per set of sources.

    Attributes:
        rho: of predicted with true latencies; NaN where one is constant.
        precision, recall: of the predicted accuracy-latency frontier; `None` without accuracy.
    """

    rho: Floats
    precision: Floats | None
    recall: Floats | None


def predicted_by_sources(logs: Floats, target: int, size: int, rng: np.random.Generator) -> Floats:
    """The mean of `size` other devices in random draws, (draws, n_models).

    From centred log latencies (n_models, n_devices); one draw when all others are taken.
    """
    others = np.delete(np.arange(logs.shape[1]), target)
    if size == others.size:
        consensus: Floats = logs[:, others].mean(axis=1)
        return consensus[None]
    orders = rng.permuted(np.tile(others, (DRAWS, 1)), axis=1)[:, :size]
    means: Floats = logs[:, orders].mean(axis=2).T
    return means


def accepted_error(predicted: Floats, truth: Floats, accuracy: Floats) -> Accepted:
    """Errors of (draws, n_models) against (n_models,); frontiers use models with an accuracy."""
    rho = rank_agreement(predicted, truth)
    known = np.isfinite(accuracy)
    if not known.any():
        return Accepted(rho=rho, precision=None, recall=None)
    real = frontier(np.column_stack([truth, -accuracy])[known])
    found = [overlap(frontier(np.column_stack([one, -accuracy])[known]), real) for one in predicted]
    figures = np.array([(one.precision, one.recall) for one in found if one is not None])
    return Accepted(rho=rho, precision=figures[:, 0], recall=figures[:, 1])


MODELS_TO_MEASURE = 3
"""Default number of models for a new device: one gives its speed, two correct the consensus."""
RANDOM_DRAWS = 200
"""Random choices per device that the active choice is compared with."""
MAX_TARGETS = 50
"""Maximum devices that are predicted; with more devices, this many are drawn."""
_ALL_SIZES = 10
"""Up to this many device models every number of sources is shown."""

_STEPS = {
    "step": pl.Int64,
    "model": pl.String,
    "variance_left": pl.Float64,
    "error_left": pl.Float64,
    "error_left_random": pl.Float64,
    "error_left_worst": pl.Float64,
    "rho": pl.Float64,
    "rho_random": pl.Float64,
    "n_devices": pl.Int64,
    "n_models": pl.Int64,
    "reason": pl.String,
}
_SAVINGS = {
    "n_sources": pl.Int64,
    "runs_saved": pl.Float64,
    "rho": pl.Float64,
    "rho_p10": pl.Float64,
    "rho_min": pl.Float64,
    "precision": pl.Float64,
    "recall": pl.Float64,
    "n_targets": pl.Int64,
    "n_models": pl.Int64,
    "reason": pl.String,
}


def next_models_table(session: Session) -> Table:
    """Models to measure on an unmeasured device, best first, with the remaining error.

    Settings: `k`, how many.
    """
    panel, selection = session.panel, session.selection
    found = profiles(panel)
    n_models = found.rows.size
    k = _whole(selection, "k", MODELS_TO_MEASURE, n_models - 1)
    known = consensus(found.logs)
    chosen, left = choose(known, k)
    before = float(np.trace(known.covariance - SPEED_VARIANCE))
    targets = _targets(found, selection.seed)
    rng = np.random.default_rng(selection.seed)
    errors = [_one_device(found.logs, target, k, rng) for target in targets]
    consensus_rho = [_by_consensus(found.logs, target) for target in targets]
    rows: list[dict[str, object]] = [
        {"step": 0, "rho": _mean(consensus_rho), "reason": "ranks only: its speed is unknown"}
    ]
    rows += [
        {
            "step": step + 1,
            "model": panel.models[found.rows[model]],
            "variance_left": left[step] / before,
        }
        | _over_devices([(active[step], random[step]) for active, random in errors])
        for step, model in enumerate(chosen.tolist())
    ]
    counts = {"n_devices": len(targets), "n_models": n_models}
    notes = (
        *panel.notes,
        *found.notes,
        _held_out(len(targets), len(found.devices), selection.seed),
        "variance_left: remaining variance of log latency, summed over models, as a share of "
        "the variance if the new device's speed were known. It is above 1 while only one model "
        "determines the speed.",
        "error_left: mean of |predicted / measured - 1| over models not measured, mean over "
        "devices; error_left_worst: its mean on the worst device. rho: rank correlation of "
        "measured and predicted latencies together with the true latencies. *_random: the same "
        f"for {RANDOM_DRAWS} random choices.",
        "model: the choice for a device outside this fleet, from all devices in it. The errors "
        "come from choices made again without each device. A device that differs from all of "
        "these has a larger error.",
        "No intervals: devices of one fleet are too similar to be resampled.",
    )
    frame_of_rows = pl.DataFrame([row | counts for row in rows], schema=_STEPS)
    return Table(title="Models to measure next", frame=frame_of_rows, notes=notes)


def savings_table(session: Session) -> Table:
    """Share of runs saved by measuring some device models only, against the error accepted."""
    panel, selection = session.panel, session.selection
    found = profiles(panel)
    accuracy = panel.accuracy[found.rows]
    targets = _targets(found, selection.seed)
    rng = np.random.default_rng(selection.seed)
    n_devices = len(found.devices)
    rows = [_by_flops(panel, found, targets)]
    for size in _sizes(n_devices):
        errors = [
            accepted_error(
                predicted_by_sources(found.logs, target, size, rng), found.logs[:, target], accuracy
            )
            for target in targets
        ]
        rows.append({"n_sources": size, "runs_saved": 1 - size / n_devices} | _accepted(errors))
    counts = {"n_targets": len(targets), "n_models": found.rows.size}
    shown = pl.DataFrame([row | counts for row in rows], schema=_SAVINGS)
    without = int(np.isnan(accuracy).sum())
    notes = (
        *panel.notes,
        *found.notes,
        _held_out(len(targets), n_devices, selection.seed),
        f"A device is predicted by the mean log latency of {DRAWS} random sets of n_sources "
        "others, never its own; n_sources 0 ranks by FLOPs only. runs_saved: share of the "
        f"{n_devices * found.rows.size} cells that need no run. rho_p10, rho_min: 10th "
        "percentile and lowest over devices and sets; means are over both. No intervals over "
        "models.",
        "precision, recall: of the accuracy-latency frontier, which leaves out models without "
        f"accuracy: {count_of(without, 'model')}.",
    )
    return Table(title="Runs saved against error", frame=shown, notes=notes)


def _whole(selection: Selection, name: str, default: int, most: int) -> int:
    value = setting(selection, name, min(default, most))
    if value != int(value) or not 1 <= value <= most:
        raise AnalysisError(
            f"{name}={value:g} is out of range", f"use a whole number from 1 to {most}"
        )
    return int(value)


def _targets(found: Profiles, seed: int) -> list[int]:
    n_devices = len(found.devices)
    if n_devices <= MAX_TARGETS:
        return list(range(n_devices))
    drawn = np.random.default_rng([seed, 1]).choice(n_devices, MAX_TARGETS, replace=False)
    return sorted(drawn.tolist())


def _held_out(n_targets: int, n_devices: int, seed: int) -> str:
    which = "each" if n_targets == n_devices else f"{n_targets} drawn"
    return f"Leaving out one device model at a time, {which} of {n_devices}; seed {seed}."


def _one_device(
    logs: Floats, target: int, k: int, rng: np.random.Generator
) -> tuple[list[Left], list[Left]]:
    """Active and random choice on a device left out, after 1 to `k` measurements."""
    known = consensus(np.delete(logs, target, axis=1))
    truth = logs[:, target]
    chosen, _ = choose(known, k)
    orders = rng.permuted(np.tile(np.arange(truth.size), (RANDOM_DRAWS, 1)), axis=1)
    steps = range(1, k + 1)
    return (
        [judge(known, chosen[:step], truth) for step in steps],
        [judge(known, orders[:, :step], truth) for step in steps],
    )


def _by_consensus(logs: Floats, target: int) -> float:
    others = np.delete(logs, target, axis=1).mean(axis=1)
    return float(rank_agreement(others, logs[:, target]))


def _over_devices(pairs: Sequence[tuple[Left, Left]]) -> dict[str, object]:
    errors = [float(active.error) for active, _ in pairs]
    return {
        "error_left": float(np.mean(errors)),
        "error_left_worst": max(errors),
        "error_left_random": float(np.mean([random.error.mean() for _, random in pairs])),
        "rho": _mean([float(active.rho) for active, _ in pairs]),
        "rho_random": _mean([_mean(random.rho.tolist()) for _, random in pairs]),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    """Mean of the defined values: undefined if all latencies of a device are equal."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    return float(np.mean(known)) if known else None


def _sizes(n_devices: int) -> list[int]:
    if n_devices <= _ALL_SIZES:
        return list(range(1, n_devices))
    steps = [1, 2, 3, 5, *(base * 10**power for power in range(1, 6) for base in (1, 2, 5))]
    return [*(size for size in steps if size < n_devices - 1), n_devices - 1]


def _by_flops(panel: Panel, found: Profiles, targets: Sequence[int]) -> dict[str, object]:
    row: dict[str, object] = {"n_sources": 0, "runs_saved": 1.0}
    flops = panel.flops[found.rows]
    if not np.isfinite(flops).all():
        return row | {"reason": "a model has no FLOPs"}
    accuracy = panel.accuracy[found.rows]
    return row | _accepted(
        [accepted_error(flops[None], found.logs[:, target], accuracy) for target in targets]
    )


def _accepted(errors: Sequence[Accepted]) -> dict[str, object]:
    rho = np.concatenate([error.rho for error in errors])
    rho = rho[np.isfinite(rho)]
    row: dict[str, object] = {}
    if rho.size:
        row = {"rho_p10": float(np.quantile(rho, 0.1)), "rho_min": float(rho.min())}
    row["rho"] = _mean([_mean(error.rho.tolist()) for error in errors])
    precision = [error.precision.mean() for error in errors if error.precision is not None]
    recall = [error.recall.mean() for error in errors if error.recall is not None]
    if not precision:
        return row | {"reason": "no frontier: no model has an accuracy"}
    return row | {"precision": float(np.mean(precision)), "recall": float(np.mean(recall))}

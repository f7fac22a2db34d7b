"""Which models to measure on a new device, so that the others are predicted best.

Log latencies of the known devices are draws of one Gaussian over models: their mean is the
consensus, their covariance shows which models have related errors. A model whose rank is uncertain
is one whose log latency, speed of the device apart, varies between devices.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.pareto import frontier, overlap
from fleetrank.analysis.arrays.ranking import Floats, average_ranks, require_finite, unit_columns
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.device_models import profiles
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.explanations import explained
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_settings import OVER
from fleetrank.foundation.errors import count_of

MODELS_TO_MEASURE = 3
"""Default number of models for a new device: one gives its speed, two correct the consensus."""
RANDOM_DRAWS = 200
"""Random choices per device that the active choice is compared with."""
MAX_TARGETS = 50
"""Maximum devices that are predicted; with more devices, this many are drawn."""
SHRINKAGE = 0.5
"""Half of each covariance between two models is treated as chance: a fleet has fewer devices than
models, so its sample covariance cannot be inverted. The value is not fitted to any data."""
MIN_VARIANCE = 1e-4
"""Variance of log latency: repeats of one process differ by one per cent on any device."""
SPEED_VARIANCE = 100.0
"""Variance of the log of the new device's unknown speed: a factor of e^10 is possible."""

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Consensus:
    """The prior for a new device from known devices: mean (n_models,) and covariance, square."""

    mean: Floats
    covariance: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """How well the other models are predicted after measuring some models of a device.

    Attributes:
        error: mean of |predicted / true - 1| over models not measured, (...,).
        rho: Spearman's of measured and predicted latencies with the true ones, (...,).
    """

    error: Floats
    rho: Floats


def consensus(logs: Floats) -> Consensus:
    """From centred log latencies (n_models, n_devices) of at least 2 devices."""
    require_finite(logs)
    sample = np.cov(logs)
    spread = np.diag(np.diag(sample))
    shrunk = (1 - SHRINKAGE) * sample + SHRINKAGE * spread
    floor = MIN_VARIANCE * np.eye(logs.shape[0])
    covariance: Floats = shrunk + floor + SPEED_VARIANCE
    return Consensus(mean=logs.mean(axis=1), covariance=covariance)


def choose(known: Consensus, k: int) -> tuple[Indices, Floats]:
    """The `k` models to measure, in order, and the variance left after each, (k,).

    Each is the model whose measurement reduces the summed variance of all models most.
    Source: greedy A-optimal design, Krause and Guestrin 2007.
    """
    covariance = known.covariance.copy()
    chosen: list[int] = []
    left: list[float] = []
    for _ in range(k):
        variance = np.diag(covariance).copy()
        variance[chosen] = np.inf
        best = int(np.argmax((covariance**2).sum(axis=0) / variance))
        covariance -= np.outer(covariance[best], covariance[best]) / covariance[best, best]
        # A measured model has no variance; a later step would divide by its rounding error.
        covariance[best] = covariance[:, best] = 0.0
        chosen.append(best)
        left.append(float(np.trace(covariance)))
    return np.array(chosen, dtype=np.int64), np.array(left)


def predict(known: Consensus, measured: Indices, logs: Floats) -> Floats:
    """Log latencies of all models given those `measured`, both (..., k); returns (..., n_models).

    Source: conditional mean of a Gaussian; Rasmussen and Williams 2006, A.6.
    """
    inner = known.covariance[measured[..., :, None], measured[..., None, :]]
    outer = np.swapaxes(known.covariance[measured], -1, -2)
    surprise = (logs - known.mean[measured])[..., None]
    predicted: Floats = known.mean + (outer @ np.linalg.solve(inner, surprise))[..., 0]
    return predicted


def judge(known: Consensus, measured: Indices, truth: Floats) -> Left:
    """The error left after measuring `measured` (..., k) of a device with `truth` (n_models,)."""
    predicted = predict(known, measured, truth[measured])
    np.put_along_axis(predicted, measured, truth[measured], axis=-1)
    error = np.abs(np.expm1(predicted - truth)).sum(axis=-1) / (truth.size - measured.shape[-1])
    return Left(error=error, rho=rank_agreement(predicted, truth))


def rank_agreement(predicted: Floats, truth: Floats) -> Floats:
    """Spearman's rho of (..., n_models) with (n_models,); NaN where one is constant."""
    ours = unit_columns(average_ranks(predicted[..., None]))[..., 0]
    rho: Floats = ours @ unit_columns(average_ranks(truth[:, None]))[:, 0]
    return rho


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One more model is measured on a device that was left out; means over these devices.

    Attributes:
        step: number of measured models; before the first one only ranks are known.
        model: the choice for a device outside the fleet, from all devices in it.
        variance_left: as a share of the variance if the device's speed were known.
        error_left: as `Left.error`; `_worst` is on the worst device, `_random` of random choices.
        rho: as `Left.rho`; `None` if every device measured equal latencies.
        n_devices: devices that were left out.
    """

    step: int
    model: str | None = None
    variance_left: float | None = None
    error_left: float | None = None
    error_left_random: float | None = None
    error_left_worst: float | None = None
    rho: float | None
    rho_random: float | None = None
    n_devices: int
    n_models: int
    reason: str | None = None


def next_models_as_table(session: Session) -> Table:
    """Models to measure on an unmeasured device, best first, with the remaining error.

    The choice is tested on each device that is left out of it. Settings: `k`, how many.

    Raises:
        NoDataError: fewer than 5 models or 3 device models are complete.
        AnalysisError: the setting `k` is out of range.
    """
    panel, seed = session.panel, session.selection.seed
    found = profiles(panel)
    n_devices, n_models = len(found.devices), found.rows.size
    k = _whole(session.selection, "k", MODELS_TO_MEASURE, n_models - 1)
    known = consensus(found.logs)
    chosen, left = choose(known, k)
    before = float(np.trace(known.covariance - SPEED_VARIANCE))
    targets = drawn_targets(n_devices, seed)
    rng = np.random.default_rng(seed)
    errors = [_one_device(found.logs, target, k, rng) for target in targets]
    steps = (
        replace(
            _step([(active[number], random[number]) for active, random in errors], n_models),
            step=number + 1,
            model=panel.models[found.rows[model]],
            variance_left=left[number] / before,
        )
        for number, model in enumerate(chosen.tolist())
    )
    by_consensus = [
        float(rank_agreement(np.delete(found.logs, at, axis=1).mean(axis=1), found.logs[:, at]))
        for at in targets
    ]
    unmeasured = Step(
        step=0,
        rho=known_mean_of(by_consensus),
        n_devices=len(targets),
        n_models=n_models,
        reason="ranks only: its speed is unknown",
    )
    return Table.of(
        Step,
        (unmeasured, *steps),
        title="Models to measure next",
        notes=(*panel.notes, *found.notes),
        explanation=explained(
            "effort/models",
            {
                "which": which_left_out(len(targets), n_devices),
                "n_devices": n_devices,
                "seed": seed,
                "draws": RANDOM_DRAWS,
            },
        ),
    )


def drawn_targets(n_devices: int, seed: int) -> list[int]:
    """The devices to leave out, one at a time: all, or 50 drawn ones."""
    if n_devices <= MAX_TARGETS:
        return list(range(n_devices))
    drawn = np.random.default_rng([seed, 1]).choice(n_devices, MAX_TARGETS, replace=False)
    return sorted(drawn.tolist())


def which_left_out(n_targets: int, n_devices: int) -> str:
    """Which of the devices were left out, one at a time."""
    return "each" if n_targets == n_devices else f"{n_targets} drawn"


def known_mean_of(values: Sequence[float | None]) -> float | None:
    """Mean of the defined values: undefined if all latencies of a device are equal."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    return float(np.mean(known)) if known else None


def _whole(selection: Selection, name: str, default: int, most: int) -> int:
    value = setting(selection, name, min(default, most))
    if value != int(value) or not 1 <= value <= most:
        raise AnalysisError(
            f"{name}={value:g} is out of range", f"use a whole number from 1 to {most}"
        )
    return int(value)


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


def _step(errors: Sequence[tuple[Left, Left]], n_models: int) -> Step:
    mine = [float(active.error) for active, _ in errors]
    return Step(
        step=0,
        n_devices=len(errors),
        n_models=n_models,
        error_left=float(np.mean(mine)),
        error_left_worst=max(mine),
        error_left_random=float(np.mean([random.error.mean() for _, random in errors])),
        rho=known_mean_of([float(active.rho) for active, _ in errors]),
        rho_random=known_mean_of([known_mean_of(random.rho.tolist()) for _, random in errors]),
    )


# Runs saved by measuring a few device models only, against the error of predicting the others.

DRAWS = 50
"""Random sets of sources per target and size; the error of their mean is then about 1 %."""
_ALL_SIZES = 10
"""Up to this many device models every number of sources is shown."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """The error accepted if only some device models are measured.

    Attributes:
        n_sources: measured device models; 0 ranks by FLOPs only.
        runs_saved: share of the cells that need no run.
        rho: mean over devices and sets of sources; `rho_p10` and `rho_min` are the 10th
            percentile and the lowest.
        precision, recall: of the predicted accuracy-latency frontier; `None` without accuracy.
        n_targets: devices that were predicted; `n_models`: models that all devices have in common.
    """

    n_sources: int
    runs_saved: float
    rho: float | None = None
    rho_p10: float | None = None
    rho_min: float | None = None
    precision: float | None = None
    recall: float | None = None
    n_targets: int
    n_models: int
    reason: str | None = None


def effort_table(session: Session) -> Table:
    """What to measure, and the error that is left: models of a new device, or devices.

    Devices: each device model is predicted from FLOPs, and from random sets of other ones.

    Raises:
        NoDataError: fewer than 5 models or 3 device models are complete.
    """
    if OVER.chosen(session.selection) == "models":
        return next_models_as_table(session)
    panel, seed = session.panel, session.selection.seed
    found = profiles(panel)
    n_devices, n_models = len(found.devices), found.rows.size
    flops, accuracy = panel.flops[found.rows], panel.accuracy[found.rows]
    targets = drawn_targets(n_devices, seed)
    rng = np.random.default_rng(seed)
    blank = Savings(
        n_sources=0,
        runs_saved=1.0,
        n_targets=len(targets),
        n_models=n_models,
        reason="a model has no FLOPs",
    )
    savings = [blank]
    if np.isfinite(flops).all():
        errors = [accepted_error(flops[None], found.logs[:, at], accuracy) for at in targets]
        savings = [_with_errors(blank, errors)]
    for size in _sizes(n_devices):
        errors = [
            accepted_error(
                predicted_by_sources(found.logs, target, size, rng), found.logs[:, target], accuracy
            )
            for target in targets
        ]
        one = replace(blank, n_sources=size, runs_saved=1 - size / n_devices)
        savings.append(_with_errors(one, errors))
    return Table.of(
        Savings,
        savings,
        title="Runs saved against error",
        notes=(*panel.notes, *found.notes),
        explanation=explained(
            "effort/devices",
            {
                "which": which_left_out(len(targets), n_devices),
                "n_devices": n_devices,
                "seed": seed,
                "draws": DRAWS,
                "n_cells": n_devices * n_models,
                "n_without_accuracy": count_of(int(np.isnan(accuracy).sum()), "model"),
            },
        ),
    )


def _sizes(n_devices: int) -> list[int]:
    if n_devices <= _ALL_SIZES:
        return list(range(1, n_devices))
    steps = [1, 2, 3, 5, *(base * 10**power for power in range(1, 6) for base in (1, 2, 5))]
    return [*(size for size in steps if size < n_devices - 1), n_devices - 1]


def _with_errors(one: Savings, errors: Sequence[Accepted]) -> Savings:
    rho = np.concatenate([error.rho for error in errors])
    rho = rho[np.isfinite(rho)]
    precision = [error.precision.mean() for error in errors if error.precision is not None]
    recall = [error.recall.mean() for error in errors if error.recall is not None]
    return replace(
        one,
        rho=known_mean_of([known_mean_of(error.rho.tolist()) for error in errors]),
        rho_p10=float(np.quantile(rho, 0.1)) if rho.size else None,
        rho_min=float(rho.min()) if rho.size else None,
        precision=float(np.mean(precision)) if precision else None,
        recall=float(np.mean(recall)) if recall else None,
        reason=None if precision else "no frontier: no model has an accuracy",
    )

"""Which models to measure on a new device, so that the others are predicted best.

Log latencies of the known devices are draws of one Gaussian over models: their covariance shows
which models have related errors. A model whose rank is uncertain is one whose log latency, speed of
the device apart, varies between devices. What is left is the error of `device_fit`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleetrank.analysis.arrays.bootstrap import known, known_mean
from fleetrank.analysis.arrays.pareto import frontier, overlap
from fleetrank.analysis.arrays.ranking import Floats, average_ranks, require_finite, unit_columns
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.device_models import Profiles, profiles
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.device_fit import DeviceValues, Indices, Known, fit, known_of
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.errors import count_of

MODELS_TO_MEASURE = 3
"""Default number of models for a new device: one gives its speed, two correct the consensus."""
RANDOM_CHOICES = 20
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


def covariance_of(logs: Floats) -> Floats:
    """Of models on a new device, from centred log latencies (n_models, n_devices) of 2 or more."""
    require_finite(logs)
    sample = np.cov(logs)
    shrunk = (1 - SHRINKAGE) * sample + SHRINKAGE * np.diag(np.diag(sample))
    covariance: Floats = shrunk + MIN_VARIANCE * np.eye(logs.shape[0]) + SPEED_VARIANCE
    return covariance


def choose(covariance: Floats, k: int) -> tuple[Indices, Floats]:
    """The `k` models to measure, in order, and the variance left after each, (k,).

    Each is the model whose measurement reduces the summed variance of all models most.
    Source: greedy A-optimal design, Krause and Guestrin 2007.
    """
    covariance = covariance.copy()
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


def beside(logs: Floats, target: int) -> Known:
    """What the other devices say about one, from log latencies (n_models, n_devices)."""
    n_models, n_devices = logs.shape
    values = DeviceValues(
        logs=logs,
        facts=np.zeros((n_models, 0)),
        devices=np.arange(n_devices),
        is_alike=np.ones(n_devices, dtype=np.bool_),
        target=target,
    )
    return known_of(values, target)


def judge(others: Known, truth: Floats, measured: Indices) -> tuple[float, float]:
    """How well the other models of a device are predicted after measuring some of it.

    Args:
        others: of `beside`.
        truth: log latencies of the device, (n_models,).
        measured: rows, at least one and not all.

    Returns:
        Mean of |predicted / true - 1| over models not measured; Spearman's rho of measured and
        predicted latencies with the true ones.
    """
    predicted = fit(others, truth, measured).centre
    predicted[measured] = truth[measured]
    error = np.abs(np.expm1(predicted - truth)).sum() / (truth.size - measured.size)
    return float(error), float(rank_agreement(predicted, truth))


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


def _next_models(session: Session, found: Profiles, targets: Sequence[int]) -> Iterator[Step]:
    """Models to measure on an unmeasured device, best first, with the remaining error.

    The choice is tested on each device that is left out of it.

    Raises:
        AnalysisError: the setting `k` is out of range.
    """
    n_models = found.rows.size
    k = _whole(session.selection, "k", MODELS_TO_MEASURE, n_models - 1)
    covariance = covariance_of(found.logs)
    chosen, left = choose(covariance, k)
    before = float(np.trace(covariance - SPEED_VARIANCE))
    rng = np.random.default_rng(session.selection.seed)
    tried = np.array([_one_device(found.logs, target, k, rng) for target in targets])
    by_consensus = [
        float(rank_agreement(np.delete(found.logs, at, axis=1).mean(axis=1), found.logs[:, at]))
        for at in targets
    ]
    unmeasured = Step(
        step=0,
        rho=_mean(by_consensus),
        n_devices=len(targets),
        n_models=n_models,
        reason="ranks only: its speed is unknown",
    )
    yield unmeasured
    for number, model in enumerate(chosen.tolist()):
        error, rho = tried[:, number, 0, :].T
        random_error, random_rho = tried[:, number, 1:, :].mean(axis=1).T
        yield replace(
            unmeasured,
            step=number + 1,
            model=session.panel.models[found.rows[model]],
            variance_left=left[number] / before,
            error_left=float(error.mean()),
            error_left_worst=float(error.max()),
            error_left_random=float(random_error.mean()),
            rho=_mean(rho),
            rho_random=_mean(random_rho),
            reason=None,
        )


def _drawn_targets(n_devices: int, seed: int) -> list[int]:
    """The devices to leave out, one at a time: all, or 50 drawn ones."""
    if n_devices <= MAX_TARGETS:
        return list(range(n_devices))
    drawn = np.random.default_rng([seed, 1]).choice(n_devices, MAX_TARGETS, replace=False)
    return sorted(drawn.tolist())


def _mean(values: Sequence[float] | Floats) -> float | None:
    """Mean of the defined values: undefined if all latencies of a device are equal."""
    return known(known_mean(np.array(values), 0))


def _whole(selection: Selection, name: str, default: int, most: int) -> int:
    value = setting(selection, name, min(default, most))
    if value != int(value) or not 1 <= value <= most:
        raise AnalysisError(
            f"{name}={value:g} is out of range", f"use a whole number from 1 to {most}"
        )
    return int(value)


def _one_device(
    logs: Floats, target: int, k: int, rng: np.random.Generator
) -> list[list[tuple[float, float]]]:
    """Error and rho on a device left out, after 1 to `k` measurements: active choice, then random.

    (k, 1 + RANDOM_CHOICES, 2)
    """
    chosen, _ = choose(covariance_of(np.delete(logs, target, axis=1)), k)
    orders = [chosen, *(rng.permutation(logs.shape[0]) for _ in range(RANDOM_CHOICES))]
    others, truth = beside(logs, target), logs[:, target]
    return [[judge(others, truth, order[: step + 1]) for order in orders] for step in range(k)]


# Runs saved by measuring a few device models only, against the error of predicting the others.

DRAWS = 50
"""Random sets of sources per target and size; the error of their mean is then about 1 %."""
_ALL_SIZES = 10
"""Up to this many device models every number of sources is shown."""


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


def accepted_error(predicted: Floats, truth: Floats, accuracy: Floats) -> Floats:
    """Errors of (draws, n_models) against (n_models,): (draws, 3), NaN where undefined.

    Spearman's rho; precision and recall of the predicted accuracy-latency frontier, which has the
    models with an accuracy.
    """
    figures = np.full((len(predicted), 3), np.nan)
    figures[:, 0] = rank_agreement(predicted, truth)
    has = np.isfinite(accuracy)
    if has.any():
        real = frontier(np.column_stack([truth, -accuracy])[has])
        for row, one in zip(figures, predicted, strict=True):
            found = overlap(frontier(np.column_stack([one, -accuracy])[has]), real)
            if found is not None:
                row[1:] = found.precision, found.recall
    return figures


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


def next_models_table(session: Session) -> Table:
    """The models to measure on a new device, and the error that is left. Setting: `k`, how many.

    Raises:
        NoDataError: fewer than 5 models or 3 device models are complete.
        AnalysisError: the setting `k` is out of range.
    """
    found, targets, texts = _left_out(session)
    return Table.of(
        Step,
        _next_models(session, found, targets),
        title="Models to measure next",
        notes=(*session.panel.notes, *found.notes),
        explanation=explained("choose/models", texts | {"draws": RANDOM_CHOICES}),
    )


def effort_table(session: Session) -> Table:
    """The error that is left if only some devices are measured.

    Each device model is predicted from FLOPs, and from random sets of other ones.

    Raises:
        NoDataError: fewer than 5 models or 3 device models are complete.
    """
    found, targets, texts = _left_out(session)
    n_without = int(np.isnan(session.panel.accuracy[found.rows]).sum())
    texts |= {"draws": DRAWS, "n_cells": len(found.devices) * found.rows.size}
    texts["n_without_accuracy"] = count_of(n_without, "model")
    return Table.of(
        Savings,
        _savings(session, found, targets),
        title="Runs saved against error",
        notes=(*session.panel.notes, *found.notes),
        explanation=explained("choose/devices", texts),
    )


def _left_out(session: Session) -> tuple[Profiles, list[int], dict[str, object]]:
    """The profiles, the devices to leave out, and what the explanation says of them."""
    found, seed = profiles(session.panel), session.selection.seed
    n_devices = len(found.devices)
    targets = _drawn_targets(n_devices, seed)
    which = "each" if len(targets) == n_devices else f"{len(targets)} drawn"
    return found, targets, {"which": which, "n_devices": n_devices, "seed": seed}


def _savings(session: Session, found: Profiles, targets: Sequence[int]) -> Iterator[Savings]:
    flops, accuracy = session.panel.flops[found.rows], session.panel.accuracy[found.rows]
    n_devices, logs = len(found.devices), found.logs
    rng = np.random.default_rng(session.selection.seed)
    blank = Savings(
        n_sources=0,
        runs_saved=1.0,
        n_targets=len(targets),
        n_models=found.rows.size,
        reason="a model has no FLOPs",
    )
    if np.isfinite(flops).all():
        by_flops = [accepted_error(flops[None], logs[:, at], accuracy) for at in targets]
        yield _with_errors(blank, by_flops)
    else:
        yield blank
    for size in _sizes(n_devices):
        errors = [
            accepted_error(predicted_by_sources(logs, at, size, rng), logs[:, at], accuracy)
            for at in targets
        ]
        yield _with_errors(replace(blank, n_sources=size, runs_saved=1 - size / n_devices), errors)


def _sizes(n_devices: int) -> list[int]:
    if n_devices <= _ALL_SIZES:
        return list(range(1, n_devices))
    steps = [1, 2, 3, 5, *(base * 10**power for power in range(1, 6) for base in (1, 2, 5))]
    return [*(size for size in steps if size < n_devices - 1), n_devices - 1]


def _with_errors(one: Savings, errors: Sequence[Floats]) -> Savings:
    rho, precision, recall = (
        known_mean(np.array([known_mean(figures[:, at], 0) for figures in errors]), 0)
        for at in range(3)
    )
    drawn = np.concatenate(errors)[:, 0]
    drawn = drawn[np.isfinite(drawn)]
    return replace(
        one,
        rho=known(rho),
        rho_p10=float(np.quantile(drawn, 0.1)) if drawn.size else None,
        rho_min=float(drawn.min()) if drawn.size else None,
        precision=known(precision),
        recall=known(recall),
        reason="no frontier: no model has an accuracy" if np.isnan(precision) else None,
    )

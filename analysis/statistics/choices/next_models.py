"""Which models to measure on a new device, so that the others are predicted best.

Log latencies of the known devices are draws of one Gaussian over models: their covariance shows
which models have related errors. A model whose rank is uncertain is one whose log latency, speed of
the device apart, varies between devices. What is left is the error of `device_fit`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleetrank.analysis.arrays.known_means import known, known_mean
from fleetrank.analysis.arrays.ranking import Floats, require_finite, spearman_matrix
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.device_models import Profiles, profiles
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.prediction.device_fit import (
    DeviceValues,
    Indices,
    Known,
    fit,
    known_of,
)
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.table import Table, explained

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
    return float(error), rank_agreement(predicted, truth)


def rank_agreement(predicted: Floats, truth: Floats) -> float:
    """Spearman's rho of two of (n_models,); NaN if one is constant."""
    return float(spearman_matrix(np.column_stack([predicted, truth]))[0, 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class NextModelStep:
    """One more model is measured on a device that was left out; means over these devices.

    Attributes:
        step: number of measured models; before the first one only ranks are known.
        model: the choice for a device outside the fleet, from all devices in it.
        variance_left: as a share of the variance if the device's speed were known.
        error_left: as of `judge`; `_worst` is on the worst device, `_random` of random choices.
        rho: as of `judge`; `None` if every device measured equal latencies.
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


def _next_models(
    session: Session, found: Profiles, targets: Sequence[int]
) -> Iterator[NextModelStep]:
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
        rank_agreement(np.delete(found.logs, at, axis=1).mean(axis=1), found.logs[:, at])
        for at in targets
    ]
    unmeasured = NextModelStep(
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


def next_models_table(session: Session) -> Table:
    """The models to measure on a new device, and the error that is left. Setting: `k`, how many.

    Raises:
        NoDataError: fewer than 5 models or 3 device models are complete.
        AnalysisError: the setting `k` is out of range.
    """
    found, seed = profiles(session.panel), session.selection.seed
    n_devices = len(found.devices)
    targets = _drawn_targets(n_devices, seed)
    texts = {
        "which": "each" if len(targets) == n_devices else f"{len(targets)} drawn",
        "n_devices": n_devices,
        "seed": seed,
        "draws": RANDOM_CHOICES,
    }
    return Table.of(
        NextModelStep,
        _next_models(session, found, targets),
        title="Models to measure next",
        notes=(*session.panel.notes, *found.notes),
        explanation=explained("choose/models", texts),
    )

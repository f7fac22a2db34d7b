"""Chooses models to measure on a new device, so that the others are predicted best; on arrays.

Log latencies of the known devices are draws of one Gaussian over models: their mean is the
consensus, their covariance shows which models have related errors. A model whose rank is uncertain
is one whose log latency, speed of the device apart, varies between devices.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats, average_ranks, require_finite, unit_columns

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

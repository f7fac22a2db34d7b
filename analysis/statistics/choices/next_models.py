"""Which models to measure on a new device, so that the others are predicted best.

Log latencies of the known devices are draws of one Gaussian over models: their mean is the
consensus, their covariance shows which models have related errors. A model whose rank is uncertain
is one whose log latency, speed of the device apart, varies between devices.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats, average_ranks, require_finite, unit_columns
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.device_models import PROFILE_METHOD, profiles
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.table import Table

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
        model: the choice for a device outside the fleet, from all devices in it.
        variance_left: as a share of the variance if the device's speed were known.
        error_left: as `Left.error`; `_worst` is on the worst device, `_random` of random choices.
        rho: as `Left.rho`; `None` if every device measured equal latencies.
    """

    model: str
    variance_left: float
    error_left: float
    error_left_random: float
    error_left_worst: float
    rho: float | None
    rho_random: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextModelsResult:
    """The models to measure on an unmeasured device, best first.

    Attributes:
        consensus_rho: of the mean of the other devices, before any measurement.
        n_targets: devices that were left out, one at a time, of `n_devices`.
        notes: models and platforms that were left out.
    """

    steps: tuple[Step, ...]
    consensus_rho: float | None
    n_targets: int
    n_devices: int
    n_models: int
    notes: tuple[str, ...]


def choose_next_models(session: Session) -> NextModelsResult:
    """Chooses the models, and tests such a choice on each device that is left out of it.

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
    steps = [
        _step(
            panel.models[found.rows[model]],
            left[number] / before,
            [(active[number], random[number]) for active, random in errors],
        )
        for number, model in enumerate(chosen.tolist())
    ]
    return NextModelsResult(
        steps=tuple(steps),
        consensus_rho=known_mean_of([_by_consensus(found.logs, target) for target in targets]),
        n_targets=len(targets),
        n_devices=n_devices,
        n_models=n_models,
        notes=found.notes,
    )


def next_models_as_table(session: Session) -> Table:
    """Models to measure on an unmeasured device, best first, with the remaining error.

    Settings: `k`, how many.
    """
    found = choose_next_models(session)
    before: dict[str, object] = {
        "step": 0, "rho": found.consensus_rho, "reason": "ranks only: its speed is unknown",
    }  # fmt: skip
    rows = [before, *({"step": at, **asdict(one)} for at, one in enumerate(found.steps, start=1))]
    counts = {"n_devices": found.n_targets, "n_models": found.n_models}
    frame = pl.DataFrame([row | counts for row in rows], schema=_STEPS)
    return Table(
        title="Models to measure next",
        frame=frame,
        notes=(*session.panel.notes, *found.notes),
        explanation=(
            held_out_note(found.n_targets, found.n_devices, session.selection.seed),
            PROFILE_METHOD,
            *_MEANING,
        ),
    )


_STEPS = {
    "step": pl.Int64, "model": pl.String, "variance_left": pl.Float64, "error_left": pl.Float64,
    "error_left_random": pl.Float64, "error_left_worst": pl.Float64, "rho": pl.Float64,
    "rho_random": pl.Float64, "n_devices": pl.Int64, "n_models": pl.Int64, "reason": pl.String,
}  # fmt: skip
_MEANING = (
    "variance_left: remaining variance of log latency, summed over models, as a share of the "
    "variance if the new device's speed were known. It is above 1 while one model gives the speed.",
    "error_left: mean of |predicted / measured - 1| over models not measured, mean over "
    "devices; error_left_worst: its mean on the worst device. rho: rank correlation of "
    "measured and predicted latencies together with the true latencies. *_random: the same "
    f"for {RANDOM_DRAWS} random choices.",
    "model: the choice for a device outside this fleet, from all devices in it. The errors "
    "come from choices made again without each device. A device that differs from all of "
    "these has a larger error.",
    "No intervals: devices of one fleet are too similar to be resampled.",
)


def drawn_targets(n_devices: int, seed: int) -> list[int]:
    """The devices to leave out, one at a time: all, or 50 drawn ones."""
    if n_devices <= MAX_TARGETS:
        return list(range(n_devices))
    drawn = np.random.default_rng([seed, 1]).choice(n_devices, MAX_TARGETS, replace=False)
    return sorted(drawn.tolist())


def held_out_note(n_targets: int, n_devices: int, seed: int) -> str:
    """A note on the devices that were left out."""
    which = "each" if n_targets == n_devices else f"{n_targets} drawn"
    return f"Leaving out one device model at a time, {which} of {n_devices}; seed {seed}."


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


def _by_consensus(logs: Floats, target: int) -> float:
    others = np.delete(logs, target, axis=1).mean(axis=1)
    return float(rank_agreement(others, logs[:, target]))


def _step(model: str, variance_left: float, errors: Sequence[tuple[Left, Left]]) -> Step:
    mine = [float(active.error) for active, _ in errors]
    return Step(
        model=model,
        variance_left=variance_left,
        error_left=float(np.mean(mine)),
        error_left_worst=max(mine),
        error_left_random=float(np.mean([random.error.mean() for _, random in errors])),
        rho=known_mean_of([float(active.rho) for active, _ in errors]),
        rho_random=known_mean_of([known_mean_of(random.rho.tolist()) for _, random in errors]),
    )

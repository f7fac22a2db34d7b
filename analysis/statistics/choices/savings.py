"""Runs saved by measuring a few device models only, against the error of predicting the others."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.pareto import frontier, overlap
from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.panel.device_models import PROFILE_METHOD, profiles
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.choices.next_models import (
    drawn_targets,
    held_out_note,
    known_mean_of,
    rank_agreement,
)
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.wording import count_of

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
    """

    n_sources: int
    runs_saved: float
    rho: float | None = None
    rho_p10: float | None = None
    rho_min: float | None = None
    precision: float | None = None
    recall: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsResult:
    """Savings by number of sources, from 0.

    Attributes:
        n_targets: devices that were predicted, of `n_devices`.
        n_models: models that the devices have in common; `n_without_accuracy` of them are in no
            frontier.
        notes: models and platforms that were left out.
    """

    savings: tuple[Savings, ...]
    n_targets: int
    n_devices: int
    n_models: int
    n_without_accuracy: int
    notes: tuple[str, ...]


def runs_saved(session: Session) -> SavingsResult:
    """Predicts each device model from FLOPs, and from random sets of other device models.

    Raises:
        NoDataError: fewer than 5 models or 3 device models are complete.
    """
    panel, seed = session.panel, session.selection.seed
    found = profiles(panel)
    n_devices = len(found.devices)
    flops, accuracy = panel.flops[found.rows], panel.accuracy[found.rows]
    targets = drawn_targets(n_devices, seed)
    rng = np.random.default_rng(seed)
    savings = [Savings(n_sources=0, runs_saved=1.0, reason="a model has no FLOPs")]
    if np.isfinite(flops).all():
        errors = [accepted_error(flops[None], found.logs[:, at], accuracy) for at in targets]
        savings = [_savings(0, 1.0, errors)]
    for size in _sizes(n_devices):
        errors = [
            accepted_error(
                predicted_by_sources(found.logs, target, size, rng), found.logs[:, target], accuracy
            )
            for target in targets
        ]
        savings.append(_savings(size, 1 - size / n_devices, errors))
    return SavingsResult(
        savings=tuple(savings),
        n_targets=len(targets),
        n_devices=n_devices,
        n_models=found.rows.size,
        n_without_accuracy=int(np.isnan(accuracy).sum()),
        notes=found.notes,
    )


def savings_as_table(session: Session) -> Table:
    """Share of runs saved by measuring some device models only, against the error accepted."""
    found = runs_saved(session)
    counts = {"n_targets": found.n_targets, "n_models": found.n_models}
    rows = [asdict(one) | counts for one in found.savings]
    notes = (
        *session.panel.notes,
        *found.notes,
    )
    explanation = (
        held_out_note(found.n_targets, found.n_devices, session.selection.seed),
        PROFILE_METHOD,
        f"A device is predicted by the mean log latency of {DRAWS} random sets of n_sources "
        "others, never its own; n_sources 0 ranks by FLOPs only. runs_saved: share of the "
        f"{found.n_devices * found.n_models} cells that need no run. rho_p10, rho_min: 10th "
        "percentile and lowest over devices and sets; means are over both. No intervals over "
        "models.",
        "precision, recall: of the accuracy-latency frontier, which leaves out models without "
        f"accuracy: {count_of(found.n_without_accuracy, 'model')}.",
    )
    shown = pl.DataFrame(rows, schema=_SAVINGS)
    return Table(
        title="Runs saved against error", frame=shown, notes=notes, explanation=explanation
    )


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


def _sizes(n_devices: int) -> list[int]:
    if n_devices <= _ALL_SIZES:
        return list(range(1, n_devices))
    steps = [1, 2, 3, 5, *(base * 10**power for power in range(1, 6) for base in (1, 2, 5))]
    return [*(size for size in steps if size < n_devices - 1), n_devices - 1]


def _savings(n_sources: int, saved: float, errors: Sequence[Accepted]) -> Savings:
    rho = np.concatenate([error.rho for error in errors])
    rho = rho[np.isfinite(rho)]
    precision = [error.precision.mean() for error in errors if error.precision is not None]
    recall = [error.recall.mean() for error in errors if error.recall is not None]
    return Savings(
        n_sources=n_sources,
        runs_saved=saved,
        rho=known_mean_of([known_mean_of(error.rho.tolist()) for error in errors]),
        rho_p10=float(np.quantile(rho, 0.1)) if rho.size else None,
        rho_min=float(rho.min()) if rho.size else None,
        precision=float(np.mean(precision)) if precision else None,
        recall=float(np.mean(recall)) if recall else None,
        reason=None if precision else "no frontier: no model has an accuracy",
    )

"""The compound measure FRM, and its rank correlation without any latency signal (the null)."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from fleetrank.analysis.arrays.ranking import Floats, block_size, rank_units, require_finite


def ratios(values: Floats, reference: int | None = None) -> Floats:
    """Each model's value over the geometric mean over models (first axis), same shape.

    With `reference`, over that model's value instead.

    Raises:
        ValueError: a value is not above 0; remove that model.
    """
    logs = _logs(values)
    base = logs.mean(axis=0) if reference is None else logs[reference]
    over_base: Floats = np.exp(logs - base)
    return over_base


@dataclass(frozen=True, slots=True, kw_only=True)
class FrmWeights:
    """Exponents of FRM's ratios; 0 leaves a component out.

    Raises:
        ValueError: a weight is below 0, or latency's is 0: nothing would be measured.
    """

    flops: float = 1.0
    latency: float = 1.0
    memory: float = 1.0

    def __post_init__(self) -> None:
        if min(self.flops, self.memory) < 0 or self.latency <= 0:
            raise ValueError("weights must be 0 or more, and latency's weight above 0")

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the components with a weight above 0."""
        return tuple(name for name, weight in asdict(self).items() if weight > 0)


EQUAL_WEIGHTS = FrmWeights()


def frm(
    flops: Floats,
    latency: Floats,
    memory: Floats,
    reference: int | None = None,
    weights: FrmWeights = EQUAL_WEIGHTS,
) -> Floats:
    """(ratio_flops x ratio_latency x ratio_memory)^(1/3) of (n_models, n_platforms) each.

    `flops` is (n_models,). With `weights`, the weighted geometric mean of the ratios; a component
    of weight 0 is ignored. On one platform its ranks are those of the plain product.

    Raises:
        ValueError: a component is not above 0; remove that model.
    """
    parts = {"flops": flops[:, None], "latency": latency, "memory": memory}
    exponents = asdict(weights)
    logs = np.zeros_like(latency)
    for name in weights.used:
        logs += exponents[name] * np.log(ratios(parts[name], reference))
    root: Floats = np.exp(logs / sum(exponents.values()))
    return root


def null_units(
    rest: Floats, latency: Floats, draws: int, rng: np.random.Generator
) -> Iterator[Floats]:
    """Unit columns of the ranks of rest x latency when latency carries no information.

    Latencies are permuted over the models, independently on every platform, while `rest` (FLOPs
    x memory for FRM, ones for latency alone) stays. From (n_models, n_platforms) twice to blocks
    (some draws, n_models, n_platforms), `draws` in all; see `ranking.unit_columns`.
    """
    yield from _permuted_units(_logs(rest), _logs(latency), draws, rng)


def residual_null_units(
    rest: Floats, latency: Floats, flops: Floats, draws: int, rng: np.random.Generator
) -> Iterator[Floats]:
    """Like `null_units`, when latency carries only what FLOPs explain; `flops` is (n_models,).

    On every platform log latency = a + b log FLOPs + c (log FLOPs)^2 + residual, by least squares
    over these models. The residuals are permuted over the models, independently on every platform,
    and rho is measured on rest x rebuilt latency. `null_units` also cuts the link of latency to
    FLOPs, so it is exceeded although only FLOPs transfer. The square follows a constant cost of
    each inference: a line leaves the same bend on both platforms, which looks like agreement.

    Raises:
        ValueError: a value is not above 0; remove that model.

    Source: Freedman and Lane 1983; residuals x sqrt(n / (n - parameters)) as Davison and Hinkley
    1997, 6.3: those of a fit are smaller than the errors.
    """
    log_latency, log_flops = _logs(latency), _logs(flops)
    fit, residual = _fit_on(log_flops, log_latency)
    yield from _permuted_units(_logs(rest) + fit, residual, draws, rng)


def _fit_on(given: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Least squares of each column on (n_models,) and its square: the fit, and scaled residuals."""
    n_models = given.size
    scaled = (given - given.mean()) / (np.ptp(given) or 1.0)
    columns = np.stack([scaled, scaled**2 - np.mean(scaled**2)])
    # Two sizes of FLOPs have a line and no bend: the second column is then no parameter.
    coefficients, _, rank, _ = np.linalg.lstsq(columns.T, values, rcond=1e-6)
    # Not as a product of matrices, whose rounding orders models of equal FLOPs.
    fit: Floats = values.mean(axis=0) + (columns[..., None] * coefficients[:, None]).sum(axis=0)
    residual = values - fit
    # Rounding must not give an order to models that FLOPs explain completely.
    residual[np.abs(residual) < 1e-12 * np.maximum(np.abs(values), 1.0)] = 0.0
    return fit, residual * np.sqrt(n_models / max(1, n_models - 1 - rank))


def _permuted_units(
    log_rest: Floats, log_latency: Floats, draws: int, rng: np.random.Generator
) -> Iterator[Floats]:
    """Unit columns of the ranks of the sum with the second part permuted over the models."""
    # If only latency ranks the models, permuted latencies have permuted ranks: no sorting.
    is_alone = bool((log_rest == log_rest[:1]).all())
    moved = rank_units(log_latency) if is_alone else log_latency
    step = block_size(*log_rest.shape)
    for start in range(0, draws, step):
        # A column's models side by side in memory: permuting and sorting take half the time.
        by_column = np.empty((min(step, draws - start), *moved.T.shape))
        by_column[:] = moved.T
        rng.permuted(by_column, axis=2, out=by_column)
        if not is_alone:
            by_column += log_rest.T
        permuted = np.swapaxes(by_column, 1, 2)
        yield permuted if is_alone else rank_units(permuted)


def headroom(rho: float, null: float) -> float | None:
    """(rho - null) / (1 - null): the share of what the null leaves open; `None` at a null of 1."""
    return None if null >= 1 else (rho - null) / (1 - null)


def null_p(rho: Floats | float, null: Floats) -> Floats:
    """One-sided p of `rho` (...) against null draws (draws, ...): (b + 1) / (draws + 1)."""
    reached = (null >= rho - 1e-9).sum(axis=0)
    p: Floats = (reached + 1) / (null.shape[0] + 1)
    return np.where(np.isnan(rho), np.nan, p)


def mid_p(rho: Floats | float, null: Floats) -> Floats:
    """Like `null_p`, with half the weight for draws equal to `rho`, and for `rho` itself.

    Few models have few possible rhos, so many draws are equal to the measured one, at rho 1 above
    all. Counting them fully rejects a true null in 1 % of cases instead of 5 %.
    Source: Lancaster 1961.
    """
    above = (null > rho + 1e-9).sum(axis=0)
    reached = (null >= rho - 1e-9).sum(axis=0)
    p: Floats = (above + reached + 1) / (2 * (null.shape[0] + 1))
    return np.where(np.isnan(rho), np.nan, p)


def _logs(values: Floats) -> Floats:
    require_finite(values)
    if (values <= 0).any():
        raise ValueError("a ratio needs values above 0: remove models without them")
    logs: Floats = np.log(values)
    return logs

"""Fits the roofline of a device to measured latencies: peak, bandwidth and overhead.

Latency is max(operations / peak, bytes / bandwidth) / efficiency + overhead, as a simulated device
computes it. Source: S. Williams, A. Waterman, D. Patterson, Roofline (CACM 52(4), 2009).
"""

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.arrays.reliability import ROOFLINE_MIN_MODELS

_SOFT = 0.1
"""Log residuals beyond 10 % count less than their square (soft L1), so that one model with a slow
operator does not decide the fit."""
_STARTS = tuple(itertools.product((1.0, 3.0), (0.1, 1.0, 10.0, 100.0, 1e5), (0.9, 0.3, 0.01)))
"""Factors of the peak, bandwidths in 10^9 bytes a second, and shares of the fastest latency. The
maximum has kinks, so the fit starts from each magnitude."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineFit:
    """The roofline of one device.

    Attributes:
        peak_gflops: 10^9 operations a second.
        bandwidth_gbps: 10^9 bytes a second; a lower bound if it limits no model.
        is_bandwidth_known: it limits a model, so that the latencies depend on it.
        efficiency: (n_runtimes,), relative to the first runtime, whose value is 1.
        errors: (n_cells,), |predicted / measured - 1|.
    """

    peak_gflops: float
    bandwidth_gbps: float
    is_bandwidth_known: bool
    overhead_us: float
    efficiency: Floats
    errors: Floats


def fit_roofline(
    operations: Floats, weight_bytes: Floats, latency_ns: Floats, runtime: npt.NDArray[np.int64]
) -> RooflineFit:
    """Fits by least squares of soft-L1 log residuals.

    Args:
        operations: (n_cells,), of one inference, above 0.
        weight_bytes: (n_cells,), above 0.
        latency_ns: (n_cells,), above 0.
        runtime: (n_cells,), number of each cell's runtime, from 0 without gaps.

    Raises:
        ValueError: fewer than `MIN_MODELS` cells, or a value is not above 0 and finite.
    """
    from scipy.optimize import least_squares  # half a second that no table needs

    values = np.stack([operations, weight_bytes, latency_ns])
    if values.shape[1] < ROOFLINE_MIN_MODELS or not (
        np.isfinite(values).all() and (values > 0).all()
    ):
        raise ValueError(f"needs {ROOFLINE_MIN_MODELS} cells or more, with finite values above 0")
    log_latency = np.log(latency_ns)

    def residuals(parameters: Floats) -> Floats:
        found: Floats = np.log(_latency_ns(parameters, operations, weight_bytes, runtime))
        return found - log_latency

    # 10^9 operations a second are operations a nanosecond; overhead starts below the fastest cell.
    peak, fastest = np.median(operations / latency_ns), latency_ns.min()
    n_other = int(runtime.max())
    fits = [
        least_squares(
            residuals,
            np.array([*np.log([peak * factor, gbps, fastest * share]), *np.zeros(n_other)]),
            loss="soft_l1",
            f_scale=_SOFT,
        )
        for factor, gbps, share in _STARTS
    ]
    best = min(fits, key=lambda fit: float(fit.cost))
    peak_gflops, bandwidth_gbps, overhead_ns = np.exp(best.x[:3])
    needed_gbps = (weight_bytes / operations).max() * peak_gflops
    is_known = bool(needed_gbps > bandwidth_gbps)
    return RooflineFit(
        peak_gflops=float(peak_gflops),
        bandwidth_gbps=float(bandwidth_gbps if is_known else needed_gbps),
        is_bandwidth_known=is_known,
        overhead_us=float(overhead_ns) / 1_000,
        efficiency=np.exp(np.array([0.0, *best.x[3:]])),
        errors=np.abs(np.expm1(residuals(best.x))),
    )


def _latency_ns(
    parameters: Floats, operations: Floats, weight_bytes: Floats, runtime: npt.NDArray[np.int64]
) -> Floats:
    peak, bandwidth, overhead = np.exp(parameters[:3])
    efficiency = np.exp(np.concatenate([np.zeros(1), parameters[3:]]))[runtime]
    found: Floats = np.maximum(operations / peak, weight_bytes / bandwidth) / efficiency + overhead
    return found

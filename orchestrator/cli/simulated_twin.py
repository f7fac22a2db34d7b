"""Fits a simulated device to the stored rows of a measured one: peak, bandwidth and overhead.

Latency is max(operations / peak, bytes / bandwidth) / efficiency + overhead, as a simulated device
computes it. Source: S. Williams, A. Waterman, D. Patterson, Roofline (CACM 52(4), 2009).
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.stored.columns import RUNTIMES
from fleetrank.analysis.stored.load import load_measurements, valid_attempts
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.foundation.errors import count_of, did_you_mean
from fleetrank.foundation.inputs import IMAGE
from fleetrank.foundation.vocabulary import WEIGHT_BYTES
from fleetrank.orchestrator.errors import NothingToDoError

MIN_MODELS = 5
"""Three parameters and two residuals: with fewer, any figures fit."""
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
    if values.shape[1] < MIN_MODELS or not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError(f"needs {MIN_MODELS} cells or more, with finite values above 0")
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


SIMULATED = "simulated"
_ORIGINS = ("measured", "imported", "virtual")
_DIGITS = 4
"""Significant digits of an option: more would claim what the fit does not know."""
_LEAST = 1e-4
"""Below, an overhead in microseconds or a relative noise means none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """The options of a simulated device that imitates a measured one, and how well it does."""

    options: Mapping[str, OptionValue]
    sentence: str


def fit_twin(results: Path, device: str) -> Twin:
    """Fits a simulated device to the newest valid rows of a device or a device model.

    A figure is the median over processes; noise is the median over cells of the deviation of
    the logarithms of process medians. Of several platforms in one runtime every cell counts.

    Raises:
        NothingToDoError: the device has no rows, or too few models with known FLOPs.
    """
    every = valid_attempts(load_measurements(results, origins=_ORIGINS))
    # Its bytes are those of the weights: the cache of a decoder is not in this fit.
    rows = every.filter(pl.col("workload") == str(IMAGE))
    mine = rows.filter((pl.col("device") == device) | (pl.col("device_model") == device))
    cells = _cells(mine)
    if cells["model"].n_unique() < MIN_MODELS:
        known = rows.select(pl.col("device").unique().drop_nulls().sort()).collect()["device"]
        raise NothingToDoError(
            f"{device} has {count_of(cells['model'].n_unique(), 'measured model')} with FLOPs, "
            f"parameters and a latency; the fit needs {MIN_MODELS}",
            f"{did_you_mean(device, known.to_list())}measure more models on it; devices with "
            f"rows: {', '.join(known) or 'none'}",
        )
    runtimes = cells["runtime"].unique(maintain_order=True).to_list()
    fit = fit_roofline(
        cells["flops"].to_numpy() * cells["batch"].to_numpy().astype(float),
        (cells["parameters"] * cells["weight_bytes"]).to_numpy(),
        cells["latency_ns"].to_numpy(),
        np.array([runtimes.index(runtime) for runtime in cells["runtime"]]),
    )
    options = _options(fit, runtimes) | _facts(cells, device)
    return Twin(options=options, sentence=_sentence(fit, device, runtimes, options))


def _cells(rows: pl.LazyFrame) -> pl.DataFrame:
    """One row per cell that a roofline can explain; the runtime with most cells first."""
    latency = pl.col("latency_p50_ns")
    cells = (
        rows.filter(
            (latency > 0) & (pl.col("flops") > 0) & (pl.col("parameters") > 0)
            & pl.col("runtime").is_in(RUNTIMES) & (pl.col("batch") > 0)
        )
        .group_by("cell_key", "platform_key")
        .agg(
            pl.col(
                "model", "runtime", "flops", "parameters", "batch", "tier", "device_model",
                "memory_bytes",
            ).drop_nulls().first(),
            pl.col("precision").first().replace_strict(
                dict(WEIGHT_BYTES), default=4.0, return_dtype=pl.Float64
            ).alias("weight_bytes"),
            latency.median().alias("latency_ns"),
            latency.log().std().alias("noise"),
        )
        .collect()
    )  # fmt: skip
    n_cells = pl.len().over("runtime")
    return cells.sort(n_cells, pl.col("runtime"), "cell_key", descending=[True, False, False])


def _options(fit: RooflineFit, runtimes: list[str]) -> dict[str, OptionValue]:
    known = {
        "peak_gflops": fit.peak_gflops,
        "bandwidth_gbps": fit.bandwidth_gbps,
        "overhead_us": fit.overhead_us,
    } | {
        f"efficiency_{runtime}": float(share)
        for runtime, share in zip(runtimes, fit.efficiency, strict=True)
    }
    return {name: _rounded(value) for name, value in known.items()}


def _facts(cells: pl.DataFrame, device: str) -> dict[str, OptionValue]:
    tier, memory, noise = (cells[name].drop_nulls() for name in ("tier", "memory_bytes", "noise"))
    facts: dict[str, OptionValue] = {"device_model": f"twin of {device}"}
    if not tier.is_empty():
        facts["tier"] = str(tier[0])
    if not memory.is_empty():
        facts["memory_bytes"] = int(memory[0])
    if not noise.is_empty():
        facts["noise"] = _rounded(float(np.median(noise.to_numpy())))
    return facts


def _sentence(
    fit: RooflineFit, device: str, runtimes: list[str], options: Mapping[str, OptionValue]
) -> str:
    bandwidth = f"{options['bandwidth_gbps']:g} GB/s"
    if not fit.is_bandwidth_known:
        bandwidth += " or more (it limits no model)"
    return (
        f"Fitted to {count_of(fit.errors.size, 'cell')} of {device} ({', '.join(runtimes)}): "
        f"peak {options['peak_gflops']:g} GFLOP/s, bandwidth {bandwidth}, "
        f"overhead {options['overhead_us']:g} us.\n"
        f"Error of the fit on these cells: median {100 * np.median(fit.errors):.0f} %, "
        f"largest {100 * fit.errors.max():.0f} %."
    )


def _rounded(value: float) -> float:
    return 0.0 if value < _LEAST else float(f"{value:.{_DIGITS}g}")

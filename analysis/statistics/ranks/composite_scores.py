"""Part `composites` of table `flops`: the composite scores of other authors."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from fleetrank.analysis.arrays.pareto import Mask
from fleetrank.analysis.arrays.ranking import MIN_MODELS, Floats, require_finite
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.vocabulary import WEIGHT_BYTES

_ACCURACY_POWER, _PARAMETERS_POWER, _MACS_POWER = 2.0, 0.5, 0.5
"""Alpha, beta and gamma of NetScore. Source: Wong 2018, section 3."""
_MILLION, _BILLION = 1e6, 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """The position of models below a platform's roofline; arrays are (n_models,).

    Attributes:
        peak_flops_per_s, peak_bytes_per_s: the highest that any of the models reached.
        intensity_flops_per_byte: FLOPs of a model per byte of its parameters.
        is_compute_bound: the intensity is at or beyond the ridge, peak FLOP/s / peak byte/s.
        share: of the performance that the roofline allows at this intensity, 0 to 1.
    """

    peak_flops_per_s: float
    peak_bytes_per_s: float
    intensity_flops_per_byte: Floats
    is_compute_bound: npt.NDArray[np.bool_]
    share: Floats


def netscore(accuracy: Floats, parameters: Floats, macs: Floats) -> Floats:
    """20 log10(accuracy^2 / (parameters^0.5 x MACs^0.5)); larger is better.

    Accuracy in per cent. The formula takes parameters in millions and MACs in billions, which are
    given here as plain counts; other units add the same constant to all scores and change no rank.

    Raises:
        ValueError: a value is not above 0; remove that model.

    Source: Wong 2018, "NetScore", equation 2.
    """
    _require_positive(accuracy, parameters, macs)
    score: Floats = 20 * (
        _ACCURACY_POWER * np.log10(accuracy)
        - _PARAMETERS_POWER * np.log10(parameters / _MILLION)
        - _MACS_POWER * np.log10(macs / _BILLION)
    )
    return score


def energy_delay_mj_ms(energy_mj: Floats, latency_ns: Floats) -> Floats:
    """Energy of an inference times its latency, mJ x ms. Source: Gonzalez and Horowitz 1996."""
    require_finite(np.concatenate([energy_mj, latency_ns]))
    product: Floats = energy_mj * latency_ns / 1e6
    return product


def roofline(flops: Floats, weight_bytes: Floats, latency_ns: Floats) -> Roofline:
    """A roofline estimated from the models of one platform, and the position of each model.

    It is an estimate: the real peaks are equal to or higher than these models' peaks, and only
        reading the parameters once is counted as traffic, not activations.

    Raises:
        ValueError: a value is not above 0; remove that model.

    Source: Williams, Waterman and Patterson 2009.
    """
    _require_positive(flops, weight_bytes, latency_ns)
    seconds = latency_ns / 1e9
    peak_flops, peak_bytes = float((flops / seconds).max()), float((weight_bytes / seconds).max())
    intensity = flops / weight_bytes
    allowed = np.minimum(peak_flops, intensity * peak_bytes)
    return Roofline(
        peak_flops_per_s=peak_flops,
        peak_bytes_per_s=peak_bytes,
        intensity_flops_per_byte=intensity,
        is_compute_bound=intensity * peak_bytes >= peak_flops,
        share=np.minimum(1.0, flops / seconds / allowed),
    )


def _require_positive(*parts: Floats) -> None:
    for values in parts:
        require_finite(values)
        if (values <= 0).any():
            raise ValueError("a value is not above 0: remove models without a value")


_FLOPS_PER_MAC = 2.0
_BOUNDS = {
    "bound": pl.String,
    "roofline_share": pl.Float64,
    "flops_per_byte": pl.Float64,
    "peak_gflops_per_s": pl.Float64,
    "peak_gbytes_per_s": pl.Float64,
}
_REASONS = {
    "netscore": "no NetScore: accuracy, parameters or FLOPs are not known",
    "edp_mj_ms": "no energy reading",
    "bound": f"no roofline: fewer than {MIN_MODELS} models with FLOPs, parameters and latency, or "
    "this one lacks them",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformComposites:
    """Composite measures of the models of one platform; arrays are (n_models,), NaN unknown.

    Attributes:
        roofline: of the models `is_bounded`; `None` with fewer than 5 of them.
        is_bounded: models with FLOPs, parameters and latency.
    """

    platform: str
    models: tuple[str, ...]
    netscore: Floats
    energy_delay_mj_ms: Floats
    roofline: Roofline | None
    is_bounded: Mask


def composites(session: Session) -> tuple[PlatformComposites, ...]:
    """Every platform, sorted by key; its models are sorted by name.

    Raises:
        NoDataError: no row matches the selection.
        NotComparableError: no platform holds comparable rows.
    """
    cells = session.comparable.cells.sort("platform_key", "identity").with_columns(
        work=pl.col("flops") * pl.col("batch").fill_null(1),
        weight_bytes=pl.col("parameters")
        * pl.col("precision").replace_strict(
            dict(WEIGHT_BYTES), default=None, return_dtype=pl.Float64
        ),
    )
    return tuple(map(_of_platform, cells.partition_by("platform_key", maintain_order=True)))


def composites_table(session: Session) -> Table:
    """One row per model and platform; `source` and `source_tier` choose platforms."""
    shown = pl.concat(map(_rows, composites(session)))
    reason = pl.concat_str(
        *(pl.when(pl.col(name).is_null()).then(pl.lit(text)) for name, text in _REASONS.items()),
        separator="; ",
        ignore_nulls=True,
    )
    return Table(
        title="Composite measures",
        frame=shown.with_columns(pl.when(reason != "").then(reason).alias("reason")),
        notes=session.comparable.notes,
        explanation=explained("flops/composites", {"min_models": MIN_MODELS}),
    )


def _of_platform(cells: pl.DataFrame) -> PlatformComposites:
    rated, (accuracy, parameters, flops) = _positive(cells, "accuracy_top1", "parameters", "flops")
    metered, (energy, latency) = _positive(cells, "energy_mj", "latency_ns")
    bounded, of_roofline = _positive(cells, "work", "weight_bytes", "latency_ns")
    return PlatformComposites(
        platform=cells["platform_key"][0],
        models=tuple(cells["identity"]),
        netscore=_spread(rated, netscore(accuracy, parameters, flops / _FLOPS_PER_MAC)),
        energy_delay_mj_ms=_spread(metered, energy_delay_mj_ms(energy, latency)),
        roofline=roofline(*of_roofline) if bounded.sum() >= MIN_MODELS else None,
        is_bounded=bounded,
    )


def _rows(found: PlatformComposites) -> pl.DataFrame:
    n, bounds = len(found.models), found.roofline
    columns: dict[str, object] = dict.fromkeys(_BOUNDS)
    if bounds is not None:
        word = np.full(n, None, dtype=object)
        word[found.is_bounded] = np.where(bounds.is_compute_bound, "compute", "memory")
        columns = {
            "bound": word.tolist(),
            "roofline_share": _spread(found.is_bounded, bounds.share),
            "flops_per_byte": _spread(found.is_bounded, bounds.intensity_flops_per_byte),
            "peak_gflops_per_s": [bounds.peak_flops_per_s / 1e9] * n,
            "peak_gbytes_per_s": [bounds.peak_bytes_per_s / 1e9] * n,
        }
    return pl.DataFrame(
        {
            "model": found.models,
            "platform_key": [found.platform] * n,
            "netscore": found.netscore,
            "edp_mj_ms": found.energy_delay_mj_ms,
            **columns,
        },
        schema_overrides=_BOUNDS,
    ).fill_nan(None)


def _positive(cells: pl.DataFrame, *names: str) -> tuple[Mask, tuple[Floats, ...]]:
    """Where all columns are above 0, and their values there."""
    columns = [cells[name].cast(pl.Float64).to_numpy() for name in names]
    known = np.logical_and.reduce([column > 0 for column in columns])
    return known, tuple(column[known] for column in columns)


def _spread(known: Mask, values: Floats) -> Floats:
    """The values at their places, (n_models,); NaN elsewhere."""
    spread = np.full(known.size, np.nan)
    spread[known] = values
    return spread

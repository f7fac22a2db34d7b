"""What a hardly measured device will do: a prediction for each model, with its interval."""

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import polars as pl

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.prediction.comparable_devices import Neighbours, neighbours_of
from fleetrank.analysis.statistics.prediction.device_intervals import (
    Predicted,
    more_needed,
    predict_device,
)
from fleetrank.analysis.stored.name_patterns import fits_platform, matches
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.table import CellRow
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.foundation.wording import count_of, did_you_mean

PREDICTED = TABLES["predict"].settings["quantity"]
COVERAGE = 0.9
"""Default share of intervals that hold the measured value."""
LEAST_COVERAGE = 0.5
"""Below it the two ends of an interval can change places."""
MAX_PLATFORMS = 20
"""Platforms of one table; each is predicted on its own, in up to seconds."""
_NAMED = 3
"""Devices named in a row."""
ALONE = "no other device"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedQuantity:
    """What is predicted.

    Attributes:
        column: of the cells.
        unit: the last part of the table's columns.
        factor: from the column's unit to it.
    """

    column: str
    unit: str
    factor: float


QUANTITIES: Mapping[str, PredictedQuantity] = MappingProxyType(
    {
        "latency": PredictedQuantity(column="latency_ns", unit="ms", factor=1e-6),
        "memory": PredictedQuantity(column="peak_memory_bytes", unit="mib", factor=2.0**-20),
        "energy": PredictedQuantity(column="energy_mj", unit="mj", factor=1.0),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(CellRow):
    """One model on one platform; values in the unit of the column, `None` is undefined.

    Attributes:
        kind: `predicted`, or `measured` if a measurement exists; its prediction is then made
            without it.
        low, high: interval of a value that was not measured; `None` has its `reason`.
        method: what the prediction uses.
        calibration: `own`: errors on this device's measured models only; `fleet`: also errors on
            other devices that were treated as new; `None` for a measured value.
        k: measured models of the platform that the prediction uses.
        basis: the known device models, and the device itself in other configurations, or that
            there is none.
        unlike: how many times the usual error of the other devices is expected on this one; `None`
            for a device that is like them.
    """

    kind: str
    predicted: float | None
    low: float | None
    high: float | None
    measured: float | None
    method: str
    calibration: str | None
    k: int
    n_devices: int
    basis: str
    unlike: float | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionsResult:
    """Predictions of the platforms of a target.

    Attributes:
        rows: models in the order of their names, platform by platform.
        unpredicted: platforms without a prediction: neither they nor a comparable device have a
            figure.
    """

    rows: tuple[Prediction, ...]
    unpredicted: tuple[str, ...]


def predict(session: Session) -> PredictionsResult:
    """Every model on every platform that the target selects.

    Raises:
        AnalysisError: a setting is out of range, or too many platforms are selected.
        NoDataError: no platform or model fits, or nothing predicts any of the platforms.
        NotComparableError: as `session.comparable`.
    """
    selection, cells = session.selection, session.comparable.cells
    quantity, coverage = quantity_of(selection), coverage_of(selection)
    like = setting(selection, "like", "")
    platforms = _platforms(cells, selection, like)
    found: list[Prediction] = []
    missing: list[NoDataError] = []
    unpredicted: list[str] = []
    for platform in platforms:
        try:
            beside = neighbours_of(
                cells, platform, quantity.column, selection.source, is_new=bool(like)
            )
        except NoDataError as error:
            missing.append(error)
            unpredicted.append(platform)
            continue
        seed = [selection.seed, zlib.crc32(platform.encode())]
        result = predict_device(beside.values, coverage, np.random.default_rng(seed))
        found += _rows(beside, result, coverage, is_new=bool(like))
    if not found:
        raise missing[0]
    return PredictionsResult(
        rows=_only_models(found, setting(selection, "models", "")), unpredicted=tuple(unpredicted)
    )


def quantity_of(selection: Selection) -> PredictedQuantity:
    """The quantity of the setting; raises `AnalysisError` for an unknown word."""
    name = PREDICTED.chosen(selection)
    PREDICTED.refuse_unknown(name)
    return QUANTITIES[name]


def coverage_of(selection: Selection) -> float:
    """The coverage of the setting; raises `AnalysisError` if it is not from 0.5 to below 1."""
    coverage = setting(selection, "coverage", COVERAGE)
    if not LEAST_COVERAGE <= coverage < 1:
        raise AnalysisError(
            f"coverage={coverage:g} is out of range",
            f"use a share from {LEAST_COVERAGE:g} to below 1, such as {COVERAGE:g}",
        )
    return coverage


def _platforms(cells: pl.DataFrame, selection: Selection, like: str) -> list[str]:
    """Those of the target, or those that `like` names."""
    chosen = (like, None) if like else (selection.target, selection.target_tier)
    found: list[str] = (
        cells.filter(fits_platform(*chosen))["platform_key"].unique().sort().to_list()
    )
    if not found and like:
        hint = did_you_mean(like, cells["platform_key"].unique().sort())
        raise NoDataError(
            f"no platform fits '{like}'",
            f"{hint}give a device, a pattern with *, or a platform as `fleetrank report show "
            "latency` names it",
        )
    if not found:
        raise NoDataError(
            "the target has no measurement that is comparable",
            "choose another target, widen the selection (`include_simulated=true` adds virtual and "
            "simulated devices), or name a device of the same configuration with `like=`",
        )
    if len(found) > MAX_PLATFORMS:
        raise AnalysisError(
            f"{len(found)} platforms are selected, at most {MAX_PLATFORMS} are predicted at once",
            "choose a device with `target=`, or fewer platforms with `runtime=` or `precision=`",
        )
    return found


def _rows(
    beside: Neighbours, found: Predicted, coverage: float, *, is_new: bool
) -> Iterator[Prediction]:
    facts = count_of(beside.values.facts.shape[1], "model fact")
    shared = {
        "platform_key": f"new device like {beside.platform}" if is_new else beside.platform,
        "method": f"weighted mean and ridge, {facts}",
        "k": found.k,
        "n_devices": len(beside.devices),
        "basis": _basis(beside, found.k),
        "unlike": found.unlike,
    }
    for at, model in enumerate(beside.models):
        measured = _value(beside.values.own[at])
        low, high = _value(found.low[at]), _value(found.high[at])
        predicted = _value(found.centre[at])
        is_whole = measured is not None or None not in (predicted, low, high)
        yield Prediction(
            model=model,
            kind="predicted" if measured is None else "measured",
            predicted=predicted,
            low=None if high is None else low,
            high=None if low is None else high,
            measured=measured,
            calibration=None if measured is not None else "fleet" if found.n_groups > 1 else "own",
            reason=None if is_whole else _reason(found, len(beside.devices), coverage, predicted),
            **shared,  # type: ignore[arg-type]
        )


def _basis(beside: Neighbours, k: int) -> str:
    n, itself = len(beside.devices), count_of(beside.n_itself, "other configuration")
    parts = [", ".join(beside.devices[:_NAMED])] if n else []
    parts += [f"{n - _NAMED} more"] if n > _NAMED else []
    parts += [f"itself in {itself}"] if beside.n_itself else []
    return " and ".join(parts) or f"{ALONE}: its own {count_of(k, 'model')}"


def _reason(found: Predicted, n_devices: int, coverage: float, predicted: float | None) -> str:
    if predicted is None:
        return "no comparable device measured this model"
    needed = more_needed(found, n_devices, coverage)
    if needed is None:
        return "the interval is too wide for a number"
    models, devices = needed
    return (
        f"no interval at {100 * coverage:g} %: measure {count_of(models, 'more model')} here, or "
        f"{count_of(devices, 'more device')}"
    )


def _only_models(found: list[Prediction], patterns: str) -> tuple[Prediction, ...]:
    wanted = [part.strip() for part in patterns.split(",") if part.strip()]
    if not wanted:
        return tuple(found)
    names = pl.DataFrame({"model": sorted({one.model for one in found})})
    kept = set(names.filter(matches("model", *wanted))["model"])
    for pattern in wanted:
        if names.filter(matches("model", pattern)).is_empty():
            hint = did_you_mean(pattern.replace("*", ""), names["model"])
            raise NoDataError(
                f"no model fits '{pattern}'", f"{hint}give a name, or a pattern with *"
            )
    return tuple(one for one in found if one.model in kept)


def _value(log: float) -> float | None:
    """The value of a logarithm; `None` if it is undefined or no finite number above 0."""
    if math.isnan(log) or not -700 < log < 700:
        return None
    return math.exp(log)

"""What a hardly measured device will do: a prediction for each model, with its interval."""

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import polars as pl

from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.device_fit import (
    FLOOR,
    MAX_DEVICES,
    UNLIKE,
    Neighbours,
    Predicted,
    more_needed,
    neighbours_of,
    predict_device,
)
from fleetrank.analysis.stored.selection import Selection, fits_platform, matches, setting
from fleetrank.analysis.tables.table import CellRow, Table, explained
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.foundation.errors import count_of, did_you_mean

_PREDICTED = TABLES["predict"].settings["quantity"]
COVERAGE = 0.9
"""Default share of intervals that hold the measured value."""
LEAST_COVERAGE = 0.5
"""Below it the two ends of an interval can change places."""
MAX_PLATFORMS = 20
"""Platforms of one table; each is predicted on its own, in up to seconds."""
_NAMED = 3
"""Devices named in a row."""
_ALONE = "no other device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What is predicted.

    Attributes:
        column: of the cells.
        unit: the last part of the table's columns.
        factor: from the column's unit to it.
    """

    column: str
    unit: str
    factor: float


QUANTITIES: Mapping[str, Quantity] = MappingProxyType(
    {
        "latency": Quantity(column="latency_ns", unit="ms", factor=1e-6),
        "memory": Quantity(column="peak_memory_bytes", unit="mib", factor=2.0**-20),
        "energy": Quantity(column="energy_mj", unit="mj", factor=1.0),
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


def quantity_of(selection: Selection) -> Quantity:
    """The quantity of the setting; raises `AnalysisError` for an unknown word."""
    name = _PREDICTED.chosen(selection)
    _PREDICTED.refuse_unknown(name)
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
    return " and ".join(parts) or f"{_ALONE}: its own {count_of(k, 'model')}"


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


# The table of predictions.


def predictions_table(session: Session) -> Table:
    """Predicted and measured values of every model on the platforms of the target.

    Settings: `quantity`, `coverage` (0.5 to below 1), `like` (platforms, as `fits_platform` takes
    them, whose configuration a device without measurements has), `models` (patterns separated by
    commas).
    """
    return predictions_as_table(predict(session), session)


def predictions_as_table(found: PredictionsResult, session: Session) -> Table:
    """The table of some predictions, in the unit of the session's quantity."""
    quantity = quantity_of(session.selection)
    n = len(found.unpredicted)
    lacking = f"Not predicted: {count_of(n, 'platform')} without a comparable device."
    table = Table.of(
        Prediction,
        found.rows,
        title=f"Predicted {_PREDICTED.chosen(session.selection)}{_stands_on(found)}",
        notes=(
            *session.comparable.notes,
            *((lacking,) if n else ()),
            *_unlike(found),
            _summary(found, coverage_of(session.selection)),
        ),
        explanation=explained(
            "predict/values",
            {
                "most_devices": MAX_DEVICES,
                "seed": session.selection.seed,
                "floor": FLOOR,
                "unlike": UNLIKE,
            },
        ),
    )
    in_unit = [pl.col(name) * quantity.factor for name in _VALUES]
    names = {name: f"{name}_{quantity.unit}" for name in _VALUES}
    frame = table.frame.with_columns(in_unit).rename(names)
    predicted = frame.filter(kind="predicted")
    brief = Table(title=table.title, frame=predicted)
    return replace(table, frame=frame, brief=brief if predicted.height else None)


_VALUES = ("predicted", "low", "high", "measured")


def _unlike(found: PredictionsResult) -> Iterator[str]:
    """A sentence for each platform that the known devices predict badly."""
    factors = {one.platform_key: one.unlike for one in found.rows if one.unlike is not None}
    for platform, factor in factors.items():
        yield (
            f"{platform} is unlike the other devices: {factor:.1f} times their usual error is "
            "expected on it, so its intervals are wider."
        )


def _stands_on(found: PredictionsResult) -> str:
    """What follows in the title where no known device serves: such a guess is a weak one."""
    platforms = {one.platform_key: one.basis for one in found.rows}
    n_alone = sum(basis.startswith(_ALONE) for basis in platforms.values())
    if not n_alone:
        return ""
    share = f", for {n_alone} of {len(platforms)} platforms" if n_alone < len(platforms) else ""
    return f"{share} from FLOPs and parameters alone: no known device serves"


def _summary(found: PredictionsResult, coverage: float) -> str:
    predicted = [one for one in found.rows if one.kind == "predicted"]
    if not predicted:
        return "Every row is a measurement; predicted is what its other models predict for it."
    without = sum(one.low is None for one in predicted)
    lacking = f", {without} without one (column reason)" if without else ""
    return (
        f"PREDICTED: {len(predicted)} of {count_of(len(found.rows), 'row')}, not measured; "
        f"{len(predicted) - without} with a {100 * coverage:g} % interval{lacking}; table `choose` "
        "with `part=models` lists the models to measure next."
    )

"""The table of predictions: its columns, and what they mean."""

from dataclasses import asdict

import polars as pl

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.prediction.device_intervals import MAX_DEVICES
from fleetrank.analysis.statistics.prediction.predictions import (
    PredictionsResult,
    coverage_of,
    predict,
    quantity_of,
)
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_settings import PREDICTED
from fleetrank.foundation.wording import count_of


def predictions_table(session: Session) -> Table:
    """Predicted and measured values of every model on the platforms of the target.

    Settings: `quantity`, `coverage` (0.5 to below 1), `like` (a platform whose configuration a
    device without measurements has), `models` (patterns separated by commas).
    """
    return predictions_as_table(predict(session), session)


def predictions_as_table(found: PredictionsResult, session: Session) -> Table:
    """The table of some predictions, in the unit of the session's quantity."""
    quantity = quantity_of(session.selection)
    rows = [asdict(one) for one in found.rows]
    in_unit = {name: f"{name}_{quantity.unit}" for name in _VALUES}
    frame = pl.DataFrame(rows, schema=_SCHEMA).with_columns(
        pl.col(name) * quantity.factor for name in _VALUES
    )
    return Table(
        title=f"Predicted {PREDICTED.chosen(session.selection)}{_stands_on(found)}",
        frame=frame.rename(in_unit),
        notes=(
            *session.comparable.notes,
            *_unpredicted(found),
            _summary(found, coverage_of(session.selection)),
        ),
        explanation=(*_MEANING, f"Seed {session.selection.seed}."),
    )


_VALUES = ("predicted", "low", "high", "measured")
_SCHEMA = {
    "model": pl.String, "platform_key": pl.String, "kind": pl.String, "predicted": pl.Float64,
    "low": pl.Float64, "high": pl.Float64, "measured": pl.Float64, "method": pl.String,
    "calibration": pl.String, "k": pl.Int64, "n_devices": pl.Int64, "basis": pl.String,
    "reason": pl.String,
}  # fmt: skip
_MEANING = (
    "A row of kind 'predicted' is not a measurement: it is not stored and enters no ranking. A row "
    "of kind 'measured' shows what would have been predicted without this measurement.",
    "predicted: a ridge regression of the log value around the consensus of comparable devices, on "
    "their deviations from it, log FLOPs, log parameters and family (Rasmussen and Williams 2006); "
    "comparable devices have equal runtime, backend, mode, precision, batch, options, origin and "
    "kind of figure. The ridge is chosen by errors on left-out models and devices. "
    "method counts the facts: FLOPs, parameters and one for each family.",
    "low to high: holds the value of a new measurement with the asked probability, for any "
    "distribution of errors. calibration 'own': from left-out errors of this device's models "
    "(jackknife+, Barber, Candes, Ramdas and Tibshirani 2021). It assumes that the models to "
    "predict are like those measured, as if drawn at random from the same set.",
    "calibration 'fleet': also from errors on other devices, each treated as new with the same "
    "models measured (Lee, Barber and Willett 2023; Dunn, Wasserman and Ramdas 2023). It assumes "
    "that this device is like the others, as if drawn at random from the same fleet, and holds on "
    "average over such devices, not for each one. The proofs give at least 2 x coverage - 1 "
    "for fits that choose their ridge again; docs/predict.md shows how often the intervals hold.",
    f"Of more than {MAX_DEVICES} comparable devices, this many drawn ones calibrate.",
)


def _stands_on(found: PredictionsResult) -> str:
    """What follows in the title where no known device serves: such a guess is a weak one."""
    platforms = {one.platform_key: one.n_devices for one in found.rows}
    n_alone = sum(n_devices == 0 for n_devices in platforms.values())
    if not n_alone:
        return ""
    share = f", for {n_alone} of {len(platforms)} platforms" if n_alone < len(platforms) else ""
    return f"{share} from FLOPs and parameters alone: no known device serves"


def _unpredicted(found: PredictionsResult) -> tuple[str, ...]:
    n = len(found.unpredicted)
    what = f"{count_of(n, 'platform')} without a comparable device"
    return (f"Not predicted: {what}.",) if n else ()


def _summary(found: PredictionsResult, coverage: float) -> str:
    predicted = [one for one in found.rows if one.kind == "predicted"]
    if not predicted:
        return "Every row is a measurement; predicted is what its other models predict for it."
    without = sum(one.low is None for one in predicted)
    lacking = f", {without} without one (column reason)" if without else ""
    return (
        f"PREDICTED: {len(predicted)} of {count_of(len(found.rows), 'row')}, not measured; "
        f"{len(predicted) - without} with a {100 * coverage:g} % interval{lacking}; table `effort` "
        "chooses the models to measure next."
    )

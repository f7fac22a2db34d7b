"""The table of predictions."""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.prediction.device_fit import FLOOR
from fleetrank.analysis.statistics.prediction.device_intervals import MAX_DEVICES, UNLIKE
from fleetrank.analysis.statistics.prediction.predictions import (
    ALONE,
    PREDICTED,
    Prediction,
    PredictionsResult,
    coverage_of,
    predict,
    quantity_of,
)
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.wording import count_of


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
        title=f"Predicted {PREDICTED.chosen(session.selection)}{_stands_on(found)}",
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
    n_alone = sum(basis.startswith(ALONE) for basis in platforms.values())
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

"""Predictions for the page: models that a platform on it did not measure."""

from dataclasses import replace

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.shown import Shown
from fleetrank.analysis.statistics.prediction.predictions import (
    Prediction,
    PredictionsResult,
    predict,
)

PREDICTED_LEAD = (
    "An open symbol with a thin line is a prediction and its 90 % interval, not a measurement."
)
_DIGITS = 4
"""As measured values have on the page."""


def page_predictions(session: Session, shown: Shown) -> PredictionsResult:
    """Predicted latencies of the page's models on those of its platforms that lack them."""
    counts = dict(shown.cells.group_by("platform_key").len().iter_rows())
    rows: list[Prediction] = []
    unpredicted: list[str] = []
    for key in shown.platforms:
        if counts.get(key, 0) == len(shown.models):
            continue
        asked = session.asked(replace(session.selection, target=key))
        try:
            found = predict(asked).rows
        except NoDataError:
            unpredicted.append(key)
            continue
        rows += [one for one in found if one.measured is None and one.model in shown.model_at]
    return PredictionsResult(rows=tuple(rows), unpredicted=tuple(unpredicted))


def predicted_points(found: PredictionsResult | None, shown: Shown) -> dict[str, object]:
    """The predictions in columns, in ms; `p` and `m` are numbers of platform and model."""
    rows = [one for one in found.rows if one.predicted] if found is not None else []
    return {
        "p": [shown.platform_at[one.platform_key] for one in rows],
        "m": [shown.model_at[one.model] for one in rows],
        "ms": [_ms(one.predicted) for one in rows],
        "low_ms": [_ms(one.low) for one in rows],
        "high_ms": [_ms(one.high) for one in rows],
    }


def _ms(value_ns: float | None) -> float | None:
    return None if value_ns is None else float(f"{value_ns / 1e6:.{_DIGITS}g}")

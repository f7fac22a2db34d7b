"""The points of the page's chart about sweeps: each model, and what all models share."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.report.html_table import Json
from fleetrank.analysis.report.shown import Shown
from fleetrank.analysis.statistics.history.history_table import History, Moved

_HOST = "host"
"""In place of a model's number."""
_DIGITS = 4


def history_series(histories: Sequence[History] | None, shown: Shown) -> list[Json]:
    """For each platform on the page its number and points, those with steps first.

    A point is [number of the model or "host", moment, ratio, what moved there]; the ratio is over
    the line's median, and a model's is without the host's part. The last one is null without a
    step.
    """
    mine = [one for one in histories or () if one.rows["platform_key"][0] in shown.platform_at]
    return [
        {
            "platform": shown.platform_at[one.rows["platform_key"][0]],
            "points": [*_points(one, shown)],
        }
        for one in sorted(mine, key=lambda one: not one.steps)
    ]


def _points(one: History, shown: Shown) -> Iterator[list[object]]:
    times = dict(one.rows.group_by("sweep_id").agg(pl.col("started_utc").min()).iter_rows())
    moments = [f"{times[sweep]:%Y-%m-%dT%H:%M:%SZ}" for sweep in one.sweeps]
    yield from _line(_HOST, moments, one.host, _begins(one, Moved.HOST, 0))
    own = one.logs - np.nan_to_num(one.host)
    for at, model in enumerate(one.models):
        if model in shown.model_at:
            around = own[at] - np.nanmedian(own[at])
            begins = _begins(one, Moved.MODEL, at) | _begins(one, Moved.EITHER, at)
            yield from _line(shown.model_at[model], moments, around, begins)


def _begins(one: History, moved: Moved, course: int) -> dict[int, str]:
    return {step.at: what for what, step in one.steps if (what, step.course) == (moved, course)}


def _line(
    name: object, moments: Sequence[str], logs: Floats, begins: Mapping[int, str]
) -> Iterator[list[object]]:
    for at in np.flatnonzero(np.isfinite(logs)).tolist():
        yield [name, moments[at], float(f"{math.exp(logs[at]):.{_DIGITS}g}"), begins.get(at)]

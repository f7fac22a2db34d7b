"""The points of the page's chart about sweeps: each model, and what all models share."""

from collections.abc import Iterator

import polars as pl

from fleetrank.analysis.report.html_table import Json
from fleetrank.analysis.report.shown import Shown
from fleetrank.analysis.statistics.history.history_table import History

_HOST = "host"
"""In place of a model's number."""
_DIGITS = 4


def history_series(history: History | None, shown: Shown) -> list[Json]:
    """For each platform on the page its number and points, those with steps first.

    A point is [number of the model or "host", moment, ratio, what moved there]; the ratio is over
    the line's median, and a model's is without the host's part. The last one is null without a
    step.
    """
    if history is None:
        return []
    found = []
    for cells in history.cells.partition_by("platform_key", "workload", maintain_order=True):
        key, workload = cells.select("platform_key", "workload").row(0)
        if key in shown.platform_at:
            steps = history.steps.filter(platform_key=key, workload=workload)
            points = [*_points(cells, steps, shown)]
            found.append((steps.is_empty(), {"platform": shown.platform_at[key], "points": points}))
    return [one for _, one in sorted(found, key=lambda each: each[0])]


def _points(cells: pl.DataFrame, steps: pl.DataFrame, shown: Shown) -> Iterator[list[object]]:
    begins = {(one["model"], one["sweep_id"]): one["moved"] for one in steps.to_dicts()}
    cells = cells.with_columns(pl.col("started_utc").min().over("sweep_id"))
    facts, no_model = ("started_utc", "sweep_id"), pl.lit(None, pl.String).alias("model")
    host = cells.unique("sweep_id").select(*facts, no_model, ratio="host_ratio").sort(facts)
    own = cells.filter(pl.col("model").is_in(list(shown.model_at)))
    lines = pl.concat([host.drop_nulls("ratio"), own.select(*facts, "model", ratio="own_ratio")])
    for moment, sweep, model, ratio in lines.iter_rows():
        name = _HOST if model is None else shown.model_at[model]
        at = f"{moment:%Y-%m-%dT%H:%M:%SZ}"
        yield [name, at, float(f"{ratio:.{_DIGITS}g}"), begins.get((model, sweep))]

"""Part `transfer` of table `strategies`: do two platforms order models alike by crossover?"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from fleetrank.analysis.panel.pair_figures import pair_figures
from fleetrank.analysis.panel.panel import Measure
from fleetrank.analysis.panel.selected_pairs import MAX_LISTED_PAIRS
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.reading.crossover_table import Crossover, crossovers
from fleetrank.analysis.statistics.reading.reading_cells import readings
from fleetrank.analysis.tables.table import Table
from fleetrank.foundation.wording import count_of

OPERATIONS = "operations"
"""Stands for a platform whose crossovers follow from operations alone."""
_SCHEMA = {
    "strategy": pl.String, "sizes": pl.String, "platform_a": pl.String, "platform_b": pl.String,
    "n_models": pl.Int64, "rho": pl.Float64, "low": pl.Float64, "high": pl.Float64,
    "tau_b": pl.Float64, "reason": pl.String,
}  # fmt: skip
_MEANING = (
    "rho: Spearman's, of the crossover lengths of the models that have a measured one on both "
    "platforms, for the same way to read; from 5 models on. low to high: 95 % percentile bootstrap "
    "over models, from 9 on. A model without a crossover inside the measured lengths does not "
    "count, so measure lengths on both sides of it."
)
_OPERATIONS = (
    "platform_a operations: the crossover by operations against the measured one, so what rho a "
    "calculation without any device has."
)


def crossover_transfer_table(session: Session) -> Table:
    """One row for each way to read and pair of platforms; raises the errors of `crossovers`."""
    found = crossovers(session)
    keys = dict.fromkeys(one.way.key for one in found)
    rows = list(itertools.islice(_rows(found, list(keys), session), MAX_LISTED_PAIRS + 1))
    cut = (
        f"More than {count_of(MAX_LISTED_PAIRS, 'pair')} match and are not listed: choose fewer "
        "with `source=`.",
    )
    return Table(
        title="Does the crossover length transfer?",
        frame=pl.DataFrame(rows[:MAX_LISTED_PAIRS], schema=_SCHEMA),
        notes=(*readings(session).notes, *(cut if len(rows) > MAX_LISTED_PAIRS else ())),
        explanation=(_MEANING, _OPERATIONS, f"Seed {session.selection.seed}."),
    )


def _rows(
    found: Sequence[Crossover], keys: Sequence[tuple[str, str]], session: Session
) -> Iterator[dict[str, object]]:
    for key in keys:
        some = [one for one in found if one.way.key == key]
        platforms = sorted({one.place.platform_key for one in some})
        models = sorted({one.place.model for one in some})
        values = np.full((len(models), 1 + len(platforms)), np.nan)
        for one in some:
            row, column = models.index(one.place.model), platforms.index(one.place.platform_key)
            values[row, 1 + column] = np.nan if one.tokens is None else one.tokens
            if one.by_operations is not None:
                values[row, 0] = one.by_operations
        names = [OPERATIONS, *platforms]
        pairs = list(itertools.combinations(range(len(names)), 2))
        measure = Measure(
            name="crossover", rest=values, latency=np.ones_like(values), has_latency=False
        )
        figures = pair_figures(measure, pairs, session.selection.seed)
        for (a, b), figure in zip(pairs, figures, strict=True):
            yield {
                "strategy": key[0],
                "sizes": key[1],
                "platform_a": names[a],
                "platform_b": names[b],
                "n_models": figure.n_models,
                "rho": figure.rho,
                "low": figure.low,
                "high": figure.high,
                "tau_b": figure.tau_b,
                "reason": figure.reason,
            }

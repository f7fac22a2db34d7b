"""Part `ceiling` of table `trust`: the highest agreement of rankings that noise allows."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.known_means import known
from fleetrank.analysis.arrays.ranking import few_models_warning
from fleetrank.analysis.arrays.sample_size import few_models_note
from fleetrank.analysis.panel.agreement import Agreement, RhoCeiling
from fleetrank.analysis.panel.conditions import MAX_LISTED_PAIRS, Level, unlisted
from fleetrank.analysis.panel.panel import Panel, incomplete_notes
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.transfer.rank_reliability import (
    Method,
    Noise,
    noises,
    platform_interval,
    reliability_of,
    why_unreliable,
)
from fleetrank.analysis.statistics.transfer.transfer import transfer
from fleetrank.analysis.tables.table import Table, explained, frame_of

_COLUMNS = (
    "level", "measure", "source", "target", "n_models", "n_pairs", "figure", "low", "high",
    "null_mean", "null_p95", "reliability_source", "reliability_target", "ceiling",
    "share_of_ceiling", "method", "unlike", "reason",
)  # fmt: skip


def ceiling_table(session: Session) -> Table:
    """Reliability of each platform, and each transfer figure as a share of what it allows."""
    panel, seed = session.panel, session.selection.seed
    # One platform has no pair, but it has a reliability.
    found = transfer(session) if len(panel.keys) > 1 else None
    pairs = found.selected if found is not None else ()
    columns = sorted({column for pair in pairs for column in pair}) or [0]
    of_measures = noises(session)
    # Platforms first, then tiers, then pairs; measure after measure.
    rows = [row for one in of_measures for row in _reliabilities(panel, one, columns, seed)]
    if found is not None:
        names = dict.fromkeys(one.measure for one in found.groups)
        groups = (one for name in names for one in found.groups if one.measure == name)
        rows += (
            replace(one, reason="; ".join(filter(None, (one.reason, one.noise.no_ceiling))) or None)
            for one in (*groups, *found.pairs)
        )
    return Table(
        title="Ceilings",
        frame=frame_of(Agreement, rows)
        .with_columns(figure="rho", share_of_ceiling=pl.col("rho") / pl.col("ceiling"))
        .select(_COLUMNS),
        notes=(
            *panel.notes,
            *incomplete_notes(panel),
            *((unlisted(pairs),) if len(pairs) > MAX_LISTED_PAIRS else ()),
            *few_models_warning(len(panel.models)),
        ),
        explanation=(
            *explained(
                "trust/ceiling",
                {"seed": seed, "splits": of_measures[0].halves.shape[3]},
            ),
            *few_models_note(len(panel.models)),
        ),
    )


def _reliabilities(
    panel: Panel, noise: Noise, columns: Sequence[int], seed: int
) -> Iterator[Agreement]:
    every = np.arange(len(panel.models))
    for column in columns:
        value, method, n_models = reliability_of(noise, every, column)
        interval = platform_interval(noise, column, panel.keys[column], seed)
        has_interval = interval is not None and method is Method.SPLIT
        low, high = interval if interval is not None and has_interval else (None, None)
        yield Agreement(
            level=Level.PLATFORM,
            measure=noise.measure.name,
            source=panel.keys[column],
            n_models=n_models,
            rho=known(value),
            low=low,
            high=high,
            noise=RhoCeiling(method=method),
            reason=why_unreliable(noise, column) if known(value) is None else None,
        )

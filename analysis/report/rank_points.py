"""The points of the page's chart of ranks: of medians, and without the host's effects."""

import polars as pl

from fleetrank.analysis.errors import NotComparableError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.statistics.ranks.model_ranks import ranks_on_platforms

_MOST_MODELS = 60
"""Of one chart of ranks; more do not fit on a screen."""


def rank_series(evidence: Evidence) -> list[dict[str, object]]:
    """For each platform with rounds its number, and for each model two sets of ranks.

    `rows` are [number of the model, [rank, low, high] of medians, the same without the host],
    fastest first. A platform without sets is left out.
    """
    if not evidence.rounds:
        return []
    shown = evidence.shown
    took_turns = pl.col("round_id").is_not_null() & pl.col("platform_key").is_in(shown.platforms)
    chosen = evidence.selected.filter(took_turns).select("platform_key").unique().collect()
    mine = evidence.attempts.filter(pl.col("platform_key").is_in(chosen["platform_key"].implode()))
    alone = mine.with_columns(pl.lit(None, dtype=pl.String).alias("round_id"))
    without, medians = _sets(mine, evidence), _sets(alone, evidence)
    found: dict[str, list[object]] = {}
    for (platform, model), one in without.items():
        if model in shown.model_at and (platform, model) in medians:
            row = [shown.model_at[model], medians[platform, model], one]
            found.setdefault(platform, []).append(row)
    return [
        {"platform": shown.platform_at[platform], "rows": rows}
        for platform, rows in found.items()
        if 1 < len(rows) <= _MOST_MODELS
    ]


def _sets(attempts: pl.LazyFrame, evidence: Evidence) -> dict[tuple[str, str], list[int]]:
    """Rank and its set by platform and model, the fastest first."""
    try:
        found = ranks_on_platforms(Session(attempts, evidence.selection))
    except NotComparableError:
        return {}
    return {
        (str(one.platform_key), one.model): [one.rank, one.rank_low, one.rank_high]
        for one in found
        if one.rank_low is not None and one.rank_high is not None
    }

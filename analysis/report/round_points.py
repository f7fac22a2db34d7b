"""The points of the page's charts about rounds: the host while models took turns, and ranks."""

import itertools
import math
from collections.abc import Iterator, Sequence
from datetime import timedelta

import polars as pl

from fleetrank.analysis.errors import NotComparableError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.page_tables import titled
from fleetrank.analysis.rounds import MeasuredRound
from fleetrank.analysis.statistics.ranks.model_ranks import ranks_on_platforms
from fleetrank.analysis.weather import weather_of

_MOST_POINTS = 2000
"""Of one chart; a longer sweep has one point for each round."""
_FEW_DIGITS = 2
_OF_REAL_DEVICES = pl.DataFrame(schema={"device": pl.String, "origin": pl.String})
_MOST_MODELS = 60
"""Of one chart of ranks; more do not fit on a screen."""


def host_series(
    rounds: Sequence[MeasuredRound], origins: pl.DataFrame = _OF_REAL_DEVICES
) -> list[dict[str, object]]:
    """For each sweep on a device its `title` and `points`: moment, effect in per cent, verdict.

    `origins` has `device` and `origin`; the title says so if a device is not a real one.
    """
    origin_of = dict(origins.select("device", "origin").iter_rows())
    found: list[dict[str, object]] = []
    for (sweep, device), group in itertools.groupby(sorted(rounds, key=_place), key=_place):
        mine = [one for one in group if one.above is not None and one.began_utc is not None]
        is_long = sum(one.blocks.size for one in mine) > _MOST_POINTS
        points = [point for one in mine for point in _round_points(one, is_whole=is_long)]
        if points:
            title = f"{titled(device, [origin_of.get(device)])}, {sweep}"
            found.append({"title": title, "points": points})
    return found


def _place(one: MeasuredRound) -> tuple[str, str]:
    return one.sweep_id, one.device


def _round_points(one: MeasuredRound, *, is_whole: bool) -> Iterator[list[object]]:
    """A point for each block, or for the whole round; a round without blocks is one point."""
    if one.above is None or one.began_utc is None:
        return
    verdict = weather_of(one).verdict.value
    effects = zip(one.starts_ns.tolist(), one.blocks.tolist(), strict=True)
    for start_ns, block in [(0.0, 0.0)] if is_whole or one.blocks.size == 0 else effects:
        later = timedelta(microseconds=start_ns / 1e3) if math.isfinite(start_ns) else timedelta()
        percent = 100 * math.expm1(one.above + block)
        yield [
            f"{one.began_utc + later:%Y-%m-%dT%H:%M:%SZ}",
            round(percent, _FEW_DIGITS),
            verdict,
        ]


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

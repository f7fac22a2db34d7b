"""What the host did while models took turns: the effect of each block over time."""

import itertools
import math
from collections.abc import Iterator, Sequence
from datetime import timedelta

import polars as pl

from fleetrank.analysis.report.evidence import Evidence
from fleetrank.analysis.report.origin_words import titled
from fleetrank.analysis.report.page_tables import PageTables
from fleetrank.analysis.report.sections.sections import Section, listed
from fleetrank.analysis.rounds.round_values import MeasuredRound
from fleetrank.analysis.rounds.weather import weather_of

_MOST_POINTS = 2000
"""Of one chart; a longer sweep has one point for each round."""
_DIGITS = 2
_OF_REAL_DEVICES = pl.DataFrame(schema={"device": pl.String, "origin": pl.String})


def host_sections(evidence: Evidence, tables: PageTables) -> tuple[Section, ...]:
    """What the host did, if models took turns; and waits, if there were any."""
    return (*_of_rounds(evidence, tables), *_of_waits(evidence, tables))


def _of_waits(evidence: Evidence, tables: PageTables) -> Iterator[Section]:
    frame = tables["waits"].frame
    if not frame["n_waited"].sum():
        return
    yield Section(
        id="waits",
        short="Waits",
        title="How long did repeats wait for their device?",
        lead=(
            "A repeat waits while another sweep uses its host, and while its device is hot, busy "
            "or away. No latency contains a wait.",
        ),
        overall="The waits are those of all repeats; a filter does not change them.",
        tables=listed(evidence, tables, "waits", is_statistic=True, is_open=True),
    )


def _of_rounds(evidence: Evidence, tables: PageTables) -> Iterator[Section]:
    if not evidence.rounds:
        return
    yield Section(
        id="host",
        short="Host",
        title="What did the host do while models took turns?",
        lead=(
            "A point is the effect that the models of a block share: how much slower the host was "
            "than in the mean of its sweep. Ranks, ratios, tests and frontiers use latencies "
            "without this effect; the latencies above are medians and contain it. In a disturbed "
            "round the host changed so much that models may have reacted differently.",
        ),
        charts="host" if host_series(evidence.rounds) else "",
        overall="An effect is that of all models that took turns; a filter does not change it.",
        tables=listed(evidence, tables, "host", is_statistic=True),
        layout="wide",
    )


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
        points = [point for one in mine for point in _points(one, is_whole=is_long)]
        if points:
            title = f"{titled(device, [origin_of.get(device)])}, {sweep}"
            found.append({"title": title, "points": points})
    return found


def _place(one: MeasuredRound) -> tuple[str, str]:
    return one.sweep_id, one.device


def _points(one: MeasuredRound, *, is_whole: bool) -> Iterator[list[object]]:
    """A point for each block, or for the whole round; a round without blocks is one point."""
    if one.above is None or one.began_utc is None:
        return
    verdict = weather_of(one).verdict.value
    effects = zip(one.starts_ns.tolist(), one.blocks.tolist(), strict=True)
    for start_ns, block in [(0.0, 0.0)] if is_whole or one.blocks.size == 0 else effects:
        later = timedelta(microseconds=start_ns / 1e3) if math.isfinite(start_ns) else timedelta()
        percent = 100 * math.expm1(one.above + block)
        yield [f"{one.began_utc + later:%Y-%m-%dT%H:%M:%SZ}", round(percent, _DIGITS), verdict]

"""Quality and speed over the length of a text, in table `tokens`, for each way to read it.

Perplexities are of evaluations, rates of measured prompts and segments of the same model.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import polars as pl

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.labels import KEY, PARTS
from fleetrank.analysis.panel.session import Session, once_a_session
from fleetrank.analysis.statistics.measured.evaluations_table import selected_evaluations
from fleetrank.analysis.statistics.reading.reading_cells import readings
from fleetrank.analysis.statistics.reading.reading_facts import ReadingPlace
from fleetrank.analysis.statistics.reading.strategies import (
    ReadingStrategy,
    reading_time,
    ways_of,
)
from fleetrank.analysis.tables.table import Table, explained
from fleetrank.foundation.wording import count_of
from fleetrank.foundation.workload import Workload

_TASK, _METRIC = "ppl", "perplexity"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextReading:
    """One way to read texts of one length; a rate that is not known has its `reason`.

    Attributes:
        platform_key: of the rate; `None` if the model was not measured.
        sizes: the way, as table `tokens` with `part=reading` names it.
        tokens: of the text that is read as a whole, the mean over documents.
        low, high: 95 % interval of the perplexity over documents; `None` below 9 of them.
        change_percent: of the perplexity, from the shortest text of the same way; 0 for this.
    """

    model: str
    platform_key: str | None = None
    precision: str
    strategy: ReadingStrategy
    sizes: str
    tokens: int
    perplexity: float
    low: float | None
    high: float | None
    change_percent: float
    tokens_per_s: float | None = None
    time_ms: float | None = None
    peak_memory_mib: float | None = None
    data: str
    n_documents: int
    flags: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def line(self) -> tuple[str, str, str, str]:
        """What the rows of one line share."""
        return (self.model, self.precision, self.sizes, self.platform_key or "")


def contexts_table(session: Session) -> Table:
    """One row for each model, way to read, length and platform.

    Raises:
        NoDataError: no perplexity is stored, or none of the selection.
    """
    rows = context_readings(session)
    texts = [{one.data for one in line} for _, line in groupby(rows, lambda one: one.line)]
    notes = [
        f"{count_of(len({one.model for one in rows}), 'model')}, "
        f"{count_of(len({one.sizes for one in rows}), 'way')} to read, "
        f"{count_of(len({one.tokens for one in rows}), 'length')}."
    ]
    if n := sum(len(one) > 1 for one in texts):
        notes.append(
            f"{count_of(n, 'line')} of several texts: their difficulty changes the perplexity too."
        )
    if any("seeded" in one.flags for one in rows):
        notes.append("Some weights are random: these figures show no quality.")
    return Table.of(
        ContextReading,
        rows,
        title="Perplexity and speed over the length of a text",
        notes=tuple(notes),
        explanation=explained("tokens/contexts"),
    )


@once_a_session
def context_readings(session: Session) -> tuple[ContextReading, ...]:
    """The rows by line, then by length; raises as `contexts_table`."""
    found = selected_evaluations(session).filter(task=_TASK, quality_metric=_METRIC)
    found = found.filter(pl.col("quality").is_not_null(), pl.col("n_documents") > 0)
    if found.is_empty():
        raise NoDataError(
            "no perplexity of a text is stored", "run `fleetrank eval ppl` with each strategy"
        )
    try:
        places: Sequence[ReadingPlace] = readings(session).places
    except NoDataError:
        places = ()
    newest: dict[tuple[object, ...], ContextReading] = {}
    for row in found.sort("finished_utc").iter_rows(named=True):
        for one in _readings(row, places):
            newest[(*one.line, one.tokens)] = one
    rows = sorted(newest.values(), key=lambda one: (one.line, one.tokens))
    return tuple(
        replace(one, change_percent=100 * (one.perplexity / line[0].perplexity - 1))
        for line in (list(some) for _, some in groupby(rows, lambda one: one.line))
        for one in line
    )


def _readings(row: Mapping[str, Any], places: Sequence[ReadingPlace]) -> Iterator[ContextReading]:
    """An evaluation beside the rate of each platform of its model and precision."""
    strategy, sizes, tokens = _way(row)
    one = ContextReading(
        model=row["model"], precision=row["precision"], strategy=strategy, sizes=sizes,
        tokens=tokens,
        perplexity=row["quality"], low=row["quality_low"], high=row["quality_high"],
        change_percent=0.0, data=row["data"], n_documents=row["n_documents"],
        flags=tuple(row["flags"] or ()),
    )  # fmt: skip
    mine = [
        place
        for place in places
        if place.model == one.model and _precision(place.platform_key) == one.precision
    ]
    if not mine:
        yield replace(one, reason="no prompt and no segment of this model was measured")
    for place in mine:
        ways = {way.sizes: way for way in ways_of(place, row["stride_tokens"])}
        way = ways.get(sizes)
        if way is None and strategy is not ReadingStrategy.VANILLA:
            yield replace(
                one, platform_key=place.platform_key, reason=f"not measured: {_cell(sizes, row)}"
            )
            continue
        timed = reading_time(place, tokens, way)
        yield replace(
            one, platform_key=place.platform_key, tokens_per_s=timed.tokens_per_s,
            time_ms=timed.time_ms, reason=timed.reason if timed.time_ms is None else None,
            peak_memory_mib=timed.facts.peak_memory_mib if timed.facts else None,
        )  # fmt: skip


def _way(row: Mapping[str, Any]) -> tuple[ReadingStrategy, str, int]:
    """The strategy of an evaluation, its sizes, and the length that it reads as a whole."""
    name, _, memory = str(row["strategy"]).partition("+")
    strategy, window = ReadingStrategy(name), row["window_tokens"]
    text = round(row["n_tokens"] / row["n_documents"])
    if strategy is ReadingStrategy.VANILLA:
        # It forgets everything at the end of a window.
        return strategy, str(strategy), min(window, text)
    if strategy is ReadingStrategy.WINDOW:
        return strategy, f"window {window}, stride {row['stride_tokens']}", text
    return strategy, str(Workload.parse(f"segment@{window}+{memory}")), text


def _cell(sizes: str, row: Mapping[str, Any]) -> str:
    return f"prefill@{row['window_tokens']}" if sizes.startswith("window") else sizes


def _precision(platform_key: str) -> str | None:
    found = KEY.fullmatch(platform_key)
    return None if found is None else found[1 + PARTS.index("precision")]

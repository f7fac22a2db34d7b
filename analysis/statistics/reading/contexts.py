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
    ReadingTime,
    reading_time,
    ways_of,
)
from fleetrank.analysis.tables.table import Table, explained, frame_of
from fleetrank.foundation.wording import count_of
from fleetrank.foundation.workload import Workload

_FIRST = (
    "model", "platform_key", "precision", "strategy", "sizes", "tokens", "perplexity", "low",
    "high", "change_percent", "tokens_per_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextReading:
    """One way to read texts of one length: its quality, and the rate on a platform.

    Attributes:
        timed: `sizes` names the way, `tokens` is the length that is read as a whole, the mean over
            documents; without a platform the model was not measured.
        low, high: 95 % interval of the perplexity over documents; `None` below 9 of them.
        change_percent: of the perplexity, from the shortest text of the same way; 0 for this.
    """

    timed: ReadingTime
    precision: str
    perplexity: float
    low: float | None
    high: float | None
    change_percent: float = 0.0
    data: str
    n_documents: int
    flags: tuple[str, ...] = ()

    @property
    def line(self) -> tuple[str, ...]:
        """What the rows of one line share."""
        return self.timed.model, self.precision, str(self.timed.sizes), self.timed.platform_key


def contexts_table(session: Session) -> Table:
    """One row for each model, way to read, length and platform.

    Raises:
        NoDataError: no perplexity is stored, or the selection has no such row.
    """
    rows = context_readings(session)
    texts = [{one.data for one in line} for _, line in groupby(rows, lambda one: one.line)]
    notes = [
        f"{count_of(len({one.timed.model for one in rows}), 'model')}, "
        f"{count_of(len({one.timed.sizes for one in rows}), 'way')} to read, "
        f"{count_of(len({one.timed.tokens for one in rows}), 'length')}."
    ]
    if n := sum(len(one) > 1 for one in texts):
        notes.append(
            f"{count_of(n, 'line')} of several texts: their difficulty changes the perplexity too."
        )
    if any("seeded" in one.flags for one in rows):
        notes.append("Some weights are random: these figures show no quality.")
    frame = frame_of(ContextReading, rows).with_columns(pl.col("platform_key").replace("", None))
    return Table(
        title="Perplexity and speed over the length of a text",
        frame=frame.select(*_FIRST, pl.exclude(*_FIRST)),
        notes=tuple(notes),
        explanation=explained("tokens/contexts"),
    )


@once_a_session
def context_readings(session: Session) -> tuple[ContextReading, ...]:
    """The rows by line, then by length; raises as `contexts_table`."""
    found = selected_evaluations(session).filter(
        pl.col("quality").is_not_null(), pl.col("n_documents") > 0, task="ppl",
        quality_metric="perplexity",
    )  # fmt: skip
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
        for timed in _times(row, places):
            one = ContextReading(
                timed=timed, precision=row["precision"], perplexity=row["quality"],
                low=row["quality_low"], high=row["quality_high"], data=row["data"],
                n_documents=row["n_documents"], flags=tuple(row["flags"] or ()),
            )  # fmt: skip
            newest[(*one.line, timed.tokens)] = one
    rows = sorted(newest.values(), key=lambda one: (one.line, one.timed.tokens))
    return tuple(
        replace(one, change_percent=100 * (one.perplexity / line[0].perplexity - 1))
        for line in (list(some) for _, some in groupby(rows, lambda one: one.line))
        for one in line
    )


def _times(row: Mapping[str, Any], places: Sequence[ReadingPlace]) -> Iterator[ReadingTime]:
    """The time of an evaluated way on each platform of its model and precision."""
    name, _, memory = str(row["strategy"]).partition("+")
    strategy, window, stride = ReadingStrategy(name), row["window_tokens"], row["stride_tokens"]
    tokens, sizes = round(row["n_tokens"] / row["n_documents"]), str(strategy)
    cell = f"prefill@{window}"
    if strategy is ReadingStrategy.VANILLA:
        tokens = min(window, tokens)  # it forgets everything at the end of a window
    elif strategy is ReadingStrategy.WINDOW:
        sizes = f"window {window}, stride {stride}"
    else:
        sizes = cell = str(Workload.parse(f"segment@{window}+{memory}"))
    none = ReadingTime(
        model=row["model"], platform_key="", strategy=strategy, sizes=sizes, tokens=tokens,
        reason="no prompt and no segment of this model was measured",
    )  # fmt: skip
    mine = [place for place in places if place.model == row["model"]]
    at = 1 + PARTS.index("precision")
    parts = [(place, KEY.fullmatch(place.platform_key)) for place in mine]
    mine = [place for place, found in parts if found and found[at] == row["precision"]]
    if not mine:
        yield none
    for place in mine:
        way = next((one for one in ways_of(place, stride) if one.sizes == sizes), None)
        if way is None and strategy is not ReadingStrategy.VANILLA:
            reason = f"not measured: {cell}"
            yield replace(none, platform_key=place.platform_key, reason=reason)
        else:
            yield replace(reading_time(place, tokens, way), sizes=sizes)

"""Table `strategies`: the time to read a text at once, in sliding windows, or with a memory."""

from collections.abc import Iterator, Sequence

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.reading.crossover import end_points
from fleetrank.analysis.statistics.reading.crossover_table import crossover_table
from fleetrank.analysis.statistics.reading.crossover_transfer import crossover_transfer_table
from fleetrank.analysis.statistics.reading.reading_cells import (
    ReadingCell,
    ReadingPlace,
    drawn,
    readings,
)
from fleetrank.analysis.statistics.reading.segment_sizes import segment_sizes_table
from fleetrank.analysis.statistics.reading.ways import Strategy, Way, stride_of, ways_of
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.table_settings import READING
from fleetrank.foundation.inputs.workload import LARGEST_LENGTH
from fleetrank.foundation.units import BYTES_PER_MIB, NS_PER_MS, NS_PER_S

_SCHEMA = {
    "model": pl.String, "platform_key": pl.String, "strategy": pl.String, "sizes": pl.String,
    "tokens": pl.Int64, "inferences": pl.Int64, "time_ms": pl.Float64, "tokens_per_s": pl.Float64,
    "speed_up": pl.Float64, "speed_up_low": pl.Float64, "speed_up_high": pl.Float64,
    "peak_memory_mib": pl.Float64, "memory_metric": pl.String, "n_repeats": pl.Int64,
    "reason": pl.String,
}  # fmt: skip
_WAYS = (
    "vanilla: one inference, prefill@T. window: ceil((T - W) / stride) + 1 inferences prefill@W. "
    "hmt: ceil(T / L) inferences segment@L, each with K tokens before it and N memories. Nothing "
    "runs beside them: no tokenising, no sampling, and no time between two inferences."
)
_RATE = (
    "tokens_per_s: new tokens, T, over the time; tokens that a window or a segment reads again "
    "count once. peak_memory_mib: of the process that ran the inference; memory_metric says what it"
    " counts."
)
_SPEED_UP = (
    "speed_up: time of vanilla at the same T over the time here, above 1 if this is faster; empty "
    "where vanilla was not measured. Its interval: 95 % percentile bootstrap of the medians of "
    "processes, each cell apart, from 5 repeats on. Nothing is extrapolated."
)
_QUALITY = (
    "The three ways do not predict alike: a window forgets what lies before it, and a memory is a "
    "summary. What that costs, `fleetrank eval ppl` measures with trained weights."
)


def strategies_table(session: Session) -> Table:
    """One row for each model, platform, way to read and length; or another part, as set.

    Raises:
        AnalysisError: a setting is out of range.
        NoDataError: no prompt and no segment was measured at batch 1.
    """
    parts = {
        "times": _times_table,
        "crossover": crossover_table,
        "transfer": crossover_transfer_table,
        "sizes": segment_sizes_table,
    }
    return parts[READING.chosen(session.selection)](session)


def _times_table(session: Session) -> Table:
    found, stride = readings(session), stride_of(session.selection)
    lengths = tuple(sorted({*found.lengths, *_asked(session.selection)}))
    rows = [row for place in found.places for row in _rows(place, lengths, stride)]
    return Table(
        title="Ways to read a long text",
        frame=pl.DataFrame(rows, schema=_SCHEMA),
        notes=found.notes,
        explanation=(_WAYS, _RATE, _SPEED_UP, _QUALITY, drawn(session)),
    )


def _asked(selection: Selection) -> Iterator[int]:
    """The lengths that the user added.

    Raises:
        AnalysisError: one is not a whole number from 1.
    """
    for text in setting(selection, "tokens", "").replace(",", " ").split():
        if not text.isdecimal() or not 1 <= int(text) <= LARGEST_LENGTH:
            raise AnalysisError(
                f"tokens={text} is not a number of tokens",
                f"give whole numbers from 1 to {LARGEST_LENGTH:,}, such as `set tokens=2048,4096`",
            )
        yield int(text)


def _rows(
    place: ReadingPlace, lengths: Sequence[int], stride: int | None
) -> Iterator[dict[str, object]]:
    ways = list(ways_of(place, stride))
    for tokens in lengths:
        vanilla = place.prompts.get(tokens)
        yield _vanilla_row(place, vanilla, tokens)
        for way in ways:
            if way.is_repeated(tokens):
                yield _way_row(place, way, vanilla, tokens)


def _vanilla_row(place: ReadingPlace, cell: ReadingCell | None, tokens: int) -> dict[str, object]:
    shared = {
        "model": place.model,
        "platform_key": place.platform_key,
        "strategy": Strategy.VANILLA.value,
        "tokens": tokens,
    }
    if cell is None:
        return shared | {"reason": place.why_not_at_once(tokens)}
    return shared | {"inferences": 1} | _figures(cell, cell.latency_ns, tokens)


def _way_row(
    place: ReadingPlace, way: Way, vanilla: ReadingCell | None, tokens: int
) -> dict[str, object]:
    time_ns = way.time_ns(tokens)
    speed_up = None if vanilla is None else vanilla.latency_ns / time_ns
    low, high, reason = _interval(way, vanilla, tokens)
    if vanilla is None:
        reason = f"no speed-up: vanilla is {place.why_not_at_once(tokens)}"
    return {
        "model": place.model,
        "platform_key": place.platform_key,
        "strategy": way.strategy.value,
        "sizes": way.sizes,
        "tokens": tokens,
        "inferences": way.repetition.inferences(tokens),
        **_figures(way.cell, time_ns, tokens),
        "speed_up": speed_up,
        "speed_up_low": low,
        "speed_up_high": high,
        "reason": reason,
    }


def _figures(cell: ReadingCell, time_ns: float, tokens: int) -> dict[str, object]:
    memory = cell.peak_memory_bytes
    return {
        "time_ms": time_ns / NS_PER_MS,
        "tokens_per_s": tokens / (time_ns / NS_PER_S),
        "peak_memory_mib": None if memory is None else memory / BYTES_PER_MIB,
        "memory_metric": cell.memory_metric,
        "n_repeats": cell.n_repeats,
    }


def _interval(
    way: Way, vanilla: ReadingCell | None, tokens: int
) -> tuple[float | None, float | None, str | None]:
    """Ends of the speed-up's interval, or the reason why it has none."""
    if vanilla is None:
        return None, None, None
    times = way.draws_ns(tokens)
    if vanilla.draws_ns is None or times is None:
        return None, None, vanilla.why_no_draws or way.cell.why_no_draws
    return *end_points(vanilla.draws_ns / times), None

"""Part `crossover` of table `strategies`: from which length on a way is faster than at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.statistics.reading.crossover import (
    changes_of_order,
    crossing_by_operations,
    crossings,
    end_points,
    time_at,
)
from fleetrank.analysis.statistics.reading.reading_cells import (
    ReadingCell,
    ReadingPlace,
    drawn,
    readings,
)
from fleetrank.analysis.statistics.reading.ways import Strategy, Way, stride_of, ways_of
from fleetrank.analysis.tables.table import Table

_SCHEMA = {
    "model": pl.String, "platform_key": pl.String, "strategy": pl.String, "sizes": pl.String,
    "crossover_tokens": pl.Float64, "low_tokens": pl.Float64, "high_tokens": pl.Float64,
    "by_operations_tokens": pl.Float64, "measured_over_operations": pl.Float64,
    "n_lengths": pl.Int64, "shortest_tokens": pl.Int64, "longest_tokens": pl.Int64,
    "model_context_tokens": pl.Int64, "reason": pl.String,
}  # fmt: skip
_MEASURED = (
    "crossover_tokens: the length from which on this way is faster than vanilla, up to the longest "
    "measured length. Between two lengths the time per token of vanilla is a line, which is exact "
    "for a T + b T^2. The way's time is of T / L segments, or (T - W) / stride + 1 windows, "
    "not rounded up. Beyond the compared lengths it is empty, and the reason says which way is "
    "faster there."
)
_INTERVAL = (
    "low_tokens to high_tokens: 95 % percentile bootstrap of the medians of processes, each cell "
    "apart, from 5 repeats on; an end beyond the compared lengths is empty, with the reason."
)
_OPERATIONS = (
    "by_operations_tokens: the length at which both ways need equal operations, from the counted "
    "operations of three prompts or more and of one segment: f0 + f1 T + f2 T^2 = (T / L) segment. "
    "An exported graph computes the dense mask, so f2 counts every pair of tokens; a kernel that "
    "leaves out the future has half of it, and a crossover at about twice the length. It does not "
    "depend on the platform. measured_over_operations: the measured length over this one; far from "
    "1, the device is slower at one of the two shapes than operations say."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """One way to read, of one model on one platform, against vanilla.

    Attributes:
        lengths: compared ones, rising; of segments the length of one, even if no prompt has it.
        tokens: the crossover; `None` outside the compared lengths, or without any.
        low, high: of its interval; `None` outside the compared lengths, or below 5 repeats.
        by_operations: `None` if the operations do not give one.
    """

    place: ReadingPlace
    way: Way
    lengths: tuple[int, ...]
    tokens: float | None = None
    low: float | None = None
    high: float | None = None
    by_operations: float | None = None
    reason: str | None = None


def crossovers(session: Session) -> tuple[Crossover, ...]:
    """Every way of every place that can be compared with vanilla; made once a session.

    Raises:
        AnalysisError: the setting `stride` is out of range.
        NoDataError: no model has a prompt and a longer one, or a segment, on one platform.
    """
    return session.once(_crossovers)


def _crossovers(session: Session) -> tuple[Crossover, ...]:
    stride = stride_of(session.selection)
    found = tuple(
        crossover_of(place, way)
        for place in readings(session).places
        for way in ways_of(place, stride)
        if way.strategy is Strategy.HMT or any(map(way.is_repeated, place.prompts))
    )
    if not found:
        raise NoDataError(
            "no model was measured with a segment, or with prompts of two lengths, on one platform",
            "measure both: `workloads: [prefill@256, prefill@512, prefill@1024, segment@128]`",
        )
    return found


def crossover_of(place: ReadingPlace, way: Way) -> Crossover:
    """The crossover of one way."""
    used = _used_prompts(place, way)
    if not used:
        reason = f"no prompt of {way.repetition.first:,} tokens or more was measured"
        return Crossover(place=place, way=way, lengths=(), reason=reason)
    lengths, times, one = _compared(used, way)
    found = crossings(lengths, times, one, way.repetition)
    point, draws = float(found[0]), found[1:]
    low, high = end_points(draws) if draws.size else (None, None)
    by_operations = _by_operations(place, way)
    n_changes = changes_of_order(lengths, times[0], float(one[0]), way.repetition)
    reasons = (
        _outside(point, lengths),
        f"the faster way changes {n_changes} times: the last one counts" if n_changes > 1 else None,
        *(_why_no_end(*end, lengths) for end in (("low", low), ("high", high))),
        None if draws.size else _why_no_draws(used, way),
        _of_operations(by_operations, place),
    )
    return Crossover(
        place=place,
        way=way,
        lengths=tuple(int(one) for one in lengths),
        tokens=_finite(point),
        low=_finite(low),
        high=_finite(high),
        by_operations=by_operations,
        reason="; ".join(one for one in reasons if one) or None,
    )


def _used_prompts(place: ReadingPlace, way: Way) -> list[ReadingCell]:
    """Prompts that the comparison of a way needs, rising by length.

    Those of the compared lengths. Where segments have a length between two prompts, also the
    shorter one of them, because the time at that length follows from both.
    """
    cells = list(place.prompts.values())
    used = [one for one in cells if way.is_repeated(one.tokens)]
    first = way.repetition.first
    if used and way.is_repeated(first) and used[0].tokens > first:
        return [*cells[: -len(used)][-1:], *used]
    return used


def _compared(used: Sequence[ReadingCell], way: Way) -> tuple[Floats, Floats, Floats]:
    """Compared lengths (n,), vanilla's times (1 + draws, n), one inference (1 + draws,)."""
    lengths = np.array([one.tokens for one in used], dtype=float)
    columns = [one.draws_ns for one in (way.cell, *used)]
    known = [one for one in columns if one is not None]
    has_draws = len(known) == len(columns)
    medians = np.array([[one.latency_ns for one in (way.cell, *used)]])
    table = np.vstack([medians, np.column_stack(known)]) if has_draws else medians
    one, times = table[:, 0], table[:, 1:]
    first = float(way.repetition.first)
    if lengths[0] < first:
        at_first = time_at(lengths, times, np.full(one.size, first))
        return np.append(first, lengths[1:]), np.column_stack([at_first, times[:, 1:]]), one
    return lengths, times, one


def _by_operations(place: ReadingPlace, way: Way) -> float | None:
    counted = {one.tokens: one.flops for one in place.prompts.values() if one.flops}
    if not way.cell.flops:
        return None
    lengths, operations = np.array(list(counted)), np.array(list(counted.values()), dtype=float)
    return crossing_by_operations(lengths, operations, way.cell.flops, way.repetition)


def _finite(value: float | None) -> float | None:
    return None if value is None or np.isinf(value) else value


def _outside(point: float, lengths: Floats) -> str | None:
    if np.isfinite(point):
        return None
    if point > 0:
        return f"slower up to {lengths[-1]:,.0f}, the longest compared length"
    return f"faster from {lengths[0]:,.0f}, the shortest compared length"


def _why_no_end(name: str, end: float | None, lengths: Floats) -> str | None:
    if end is None or np.isfinite(end):
        return None
    beyond = f"above {lengths[-1]:,.0f}" if end > 0 else f"below {lengths[0]:,.0f}"
    return f"{name} is {beyond}"


def _why_no_draws(used: Sequence[ReadingCell], way: Way) -> str | None:
    reasons = (one.why_no_draws for one in (way.cell, *used))
    return next((one for one in reasons if one), None)


def _of_operations(found: float | None, place: ReadingPlace) -> str | None:
    if found is None:
        return "no crossover by operations: those of 3 prompts and of the repeated inference needed"
    if place.context is not None and found > place.context:
        return f"by operations it is beyond the context of {place.context:,} tokens"
    return None


def crossover_table(session: Session) -> Table:
    """One row for each model, platform and way to read; raises the errors of `crossovers`."""
    return Table(
        title="From which length on is another way faster than reading at once?",
        frame=pl.DataFrame(_rows(crossovers(session)), schema=_SCHEMA),
        notes=readings(session).notes,
        explanation=(_MEASURED, _INTERVAL, _OPERATIONS, drawn(session)),
    )


def _rows(found: tuple[Crossover, ...]) -> Iterator[dict[str, object]]:
    for one in found:
        ratio = None
        if one.tokens is not None and one.by_operations is not None:
            ratio = one.tokens / one.by_operations
        yield {
            "model": one.place.model,
            "platform_key": one.place.platform_key,
            "strategy": one.way.strategy.value,
            "sizes": one.way.sizes,
            "crossover_tokens": one.tokens,
            "low_tokens": one.low,
            "high_tokens": one.high,
            "by_operations_tokens": one.by_operations,
            "measured_over_operations": ratio,
            "n_lengths": len(one.lengths),
            "shortest_tokens": min(one.lengths, default=None),
            "longest_tokens": max(one.lengths, default=None),
            "model_context_tokens": one.place.context,
            "reason": one.reason,
        }

"""Reading long texts, in table `tokens`: at once, in sliding windows, or with a memory.

Its parts: times by length, and the length from which on a way is faster than at once.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session, once_a_session
from fleetrank.analysis.statistics.reading.crossover import (
    Repetition,
    changes_of_order,
    crossing_by_operations,
    crossings,
    end_points,
    time_at,
)
from fleetrank.analysis.statistics.reading.reading_cells import DRAWS, readings
from fleetrank.analysis.statistics.reading.reading_facts import CellFacts, ReadingCell, ReadingPlace
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.table import CellRow, Table, explained
from fleetrank.foundation.units import NS_PER_MS, NS_PER_S
from fleetrank.foundation.workload import LARGEST_LENGTH


class ReadingStrategy(StrEnum):
    """How a text is read."""

    VANILLA = "vanilla"
    """At once: `prefill@T`."""
    WINDOW = "window"
    """In windows of W tokens, each `prefill@W`, which begin a stride apart."""
    HMT = "hmt"
    """In segments with a memory: Hierarchical Memory Transformer, He et al. 2024."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A strategy that repeats one measured inference.

    Attributes:
        sizes: text of its sizes; with the strategy it names the way on every platform.
        cell: the inference.
        repetition: how often it runs.
    """

    strategy: ReadingStrategy
    sizes: str
    cell: ReadingCell
    repetition: Repetition

    def is_repeated(self, tokens: int) -> bool:
        """Whether so many tokens fill a segment, or need more than one window."""
        first = self.repetition.first
        return tokens > first or (self.strategy is ReadingStrategy.HMT and tokens == first)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingTime(CellRow):
    """The time of one way to read a text of one length; `None` has its `reason`.

    Attributes:
        speed_up: time of vanilla over the time here; `None` if vanilla was not measured.
    """

    strategy: ReadingStrategy
    sizes: str | None = None
    tokens: int
    inferences: int | None = None
    time_ms: float | None = None
    tokens_per_s: float | None = None
    speed_up: float | None = None
    speed_up_low: float | None = None
    speed_up_high: float | None = None
    facts: CellFacts | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover(CellRow):
    """One way to read, of one model on one platform, against vanilla.

    Attributes:
        crossover_tokens: infinite outside the compared lengths; `None` without any.
        low_tokens, high_tokens: of its interval; `None` below 5 repeats.
        by_operations_tokens: `None` if the operations do not give one.
        n_lengths: compared ones; of segments the length of one counts, even if no prompt has it.
    """

    strategy: ReadingStrategy
    sizes: str
    crossover_tokens: float | None = None
    low_tokens: float | None = None
    high_tokens: float | None = None
    by_operations_tokens: float | None = None
    measured_over_operations: float | None = None
    n_lengths: int = 0
    shortest_tokens: int | None = None
    longest_tokens: int | None = None
    model_context_tokens: int | None
    reason: str | None


def reading_table(session: Session) -> Table:
    """One row for each model, platform, way to read and length.

    Raises:
        AnalysisError: a setting is out of range.
        NoDataError: no prompt and no segment was measured at batch 1.
    """
    found = _times(session)
    return _table(session, "reading", ReadingTime, found, title="Ways to read a long text")


def crossover_table(session: Session) -> Table:
    """The length from which on a way is faster than reading at once; raises as `reading_table`."""
    title = "From which length on is another way faster than reading at once?"
    return _table(session, "crossover", Crossover, crossovers(session), title=title)


def _table(
    session: Session, part: str, kind: type, found: Iterable[object], *, title: str
) -> Table:
    results = list(found)
    values = {"seed": session.selection.seed, "draws": DRAWS}
    return Table.of(
        kind,
        results,
        title=title,
        notes=readings(session).notes,
        explanation=explained(f"tokens/{part}", values),
    )


def stride_of(selection: Selection) -> int | None:
    """Tokens between the starts of two windows, if the user set them.

    Raises:
        AnalysisError: it is not a whole number from 1.
    """
    if "stride" not in dict(selection.settings):
        return None
    given = setting(selection, "stride", 0.0)
    if given != int(given) or not 1 <= given <= LARGEST_LENGTH:
        raise AnalysisError(
            f"stride={given:g} is not a number of tokens",
            f"give a whole number from 1 to {LARGEST_LENGTH:,}, such as `set stride=128`",
        )
    return int(given)


def ways_of(place: ReadingPlace, stride: int | None) -> Iterator[Way]:
    """Windows by their size, then segments.

    Args:
        place: what was measured.
        stride: of windows, in tokens; `None` for half of each window. A window without room for it
            is left out, because it would skip tokens.
    """
    for size, cell in place.prompts.items():
        step = size // 2 if stride is None else stride
        if 0 < step <= size:
            yield Way(
                strategy=ReadingStrategy.WINDOW,
                sizes=f"window {size}, stride {step}",
                cell=cell,
                repetition=Repetition(first=size, step=step),
            )
    for cell in place.segments:
        yield Way(
            strategy=ReadingStrategy.HMT,
            sizes=str(cell.workload),
            cell=cell,
            repetition=Repetition(first=cell.tokens, step=cell.tokens),
        )


def _times(session: Session) -> Iterator[ReadingTime]:
    found, stride = readings(session), stride_of(session.selection)
    lengths = sorted({*found.lengths, *_asked_lengths(session.selection)})
    for place in found.places:
        ways = list(ways_of(place, stride))
        for tokens in lengths:
            yield reading_time(place, tokens, None)
            yield from (reading_time(place, tokens, way) for way in ways if way.is_repeated(tokens))


def _asked_lengths(selection: Selection) -> Iterator[int]:
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


def reading_time(place: ReadingPlace, tokens: int, way: Way | None) -> ReadingTime:
    """The time of a way, or of vanilla; the latter has no speed-up."""
    vanilla = place.prompts.get(tokens)
    cell, inferences = (way.cell, way.repetition.inferences(tokens)) if way else (vanilla, 1)
    strategy = way.strategy if way else ReadingStrategy.VANILLA
    if cell is None:
        return ReadingTime(
            model=place.model,
            platform_key=place.platform_key,
            strategy=strategy,
            tokens=tokens,
            reason=place.why_not_at_once(tokens),
        )
    time_ns = inferences * cell.latency_ns
    low, high, reason = None, None, None
    if way and vanilla is None:
        reason = f"no speed-up: vanilla is {place.why_not_at_once(tokens)}"
    elif way and vanilla and (vanilla.draws_ns is None or cell.draws_ns is None):
        reason = vanilla.why_no_draws or cell.why_no_draws
    elif way and vanilla and vanilla.draws_ns is not None and cell.draws_ns is not None:
        low, high = end_points(vanilla.draws_ns / (inferences * cell.draws_ns))
    return ReadingTime(
        model=place.model,
        platform_key=place.platform_key,
        strategy=strategy,
        sizes=way.sizes if way else None,
        tokens=tokens,
        inferences=inferences,
        time_ms=time_ns / NS_PER_MS,
        tokens_per_s=tokens / (time_ns / NS_PER_S),
        speed_up=vanilla.latency_ns / time_ns if way and vanilla else None,
        speed_up_low=low,
        speed_up_high=high,
        facts=cell.facts,
        reason=reason,
    )


@once_a_session
def crossovers(session: Session) -> tuple[Crossover, ...]:
    """Every way of every place that can be compared with vanilla; made once a session.

    Raises:
        AnalysisError: the setting `stride` is out of range.
        NoDataError: no model has a prompt and a longer one, or a segment, on one platform.
    """
    stride = stride_of(session.selection)
    found = tuple(
        crossover_of(place, way)
        for place in readings(session).places
        for way in ways_of(place, stride)
        if way.strategy is ReadingStrategy.HMT or any(map(way.is_repeated, place.prompts))
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
        return Crossover(
            model=place.model,
            platform_key=place.platform_key,
            strategy=way.strategy,
            sizes=way.sizes,
            model_context_tokens=place.context,
            reason=f"no prompt of {way.repetition.first:,} tokens or more was measured",
        )
    lengths, times, one = _compared(used, way)
    found = crossings(lengths, times, one, way.repetition)
    point, draws = float(found[0]), found[1:]
    low, high = end_points(draws) if draws.size else (None, None)
    by_operations = _by_operations(place, way)
    n_changes = changes_of_order(lengths, times[0], float(one[0]), way.repetition)
    no_draws = (cell.why_no_draws for cell in (way.cell, *used))
    reasons = (
        _outside(point, lengths),
        f"the faster way changes {n_changes} times: the last one counts" if n_changes > 1 else None,
        *(_why_no_end(*end, lengths) for end in (("low", low), ("high", high))),
        None if draws.size else next((text for text in no_draws if text), None),
        _of_operations(by_operations, place),
    )
    return Crossover(
        model=place.model,
        platform_key=place.platform_key,
        strategy=way.strategy,
        sizes=way.sizes,
        crossover_tokens=point,
        low_tokens=low,
        high_tokens=high,
        by_operations_tokens=by_operations,
        measured_over_operations=point / by_operations if by_operations else None,
        n_lengths=lengths.size,
        shortest_tokens=int(lengths[0]),
        longest_tokens=int(lengths[-1]),
        model_context_tokens=place.context,
        reason="; ".join(text for text in reasons if text) or None,
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


def _of_operations(found: float | None, place: ReadingPlace) -> str | None:
    if found is None:
        return "no crossover by operations: those of 3 prompts and of the repeated inference needed"
    if place.context is not None and found > place.context:
        return f"by operations it is beyond the context of {place.context:,} tokens"
    return None

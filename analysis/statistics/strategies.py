"""Reading long texts, in table `tokens`: at once, in sliding windows, or with a memory.

Its parts: times by length, and the length from which on a way is faster than at once.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import AnalysisError, NoDataError
from fleetrank.analysis.panel.session import Session, once_a_session
from fleetrank.analysis.statistics.reading_cells import (
    DRAWS,
    CellFacts,
    ReadingCell,
    ReadingPlace,
    readings,
)
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.analysis.tables.table import CellRow, Table, explained
from fleetrank.foundation.inputs import LARGEST_LENGTH
from fleetrank.foundation.vocabulary import NS_PER_MS, NS_PER_S

# From which length on is another way to read a text faster than reading it at once? On arrays.

_HALVINGS = 60
"""Of an interval of lengths; the last one is far below a token."""
_EXACT = 1e-6
"""Relative difference from a quadratic that rounding to whole operations stays below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """A way to read a text by the same inference, again and again.

    Attributes:
        first: tokens that the first inference reads.
        step: new tokens that each further one reads: of a sliding window its stride, of segments
            their length.
    """

    first: int
    step: int

    def inferences(self, tokens: int) -> int:
        """Inferences that read so many tokens; the last one may be partly filled."""
        return 1 + max(0, -(-(tokens - self.first) // self.step))

    def share(self, tokens: Floats) -> Floats:
        """Inferences without rounding up: equal to `inferences` where the last one is full."""
        return 1 + (tokens - self.first) / self.step


def time_at(lengths: Floats, times: Floats, tokens: Floats) -> Floats:
    """Time to read so many tokens at once, between measured lengths.

    The time per token is interpolated, linear in the length: exact for a T + b T^2, which is what
    products of the weights and of attention cost. A line in logarithms lies above that curve: it
    put crossovers 3 to 10 % too low, and in simulations their intervals held a known crossover in
    18 % of data sets or fewer, instead of 95 to 99 %.

    Args:
        lengths: (n,), rising.
        times: (draws, n).
        tokens: (draws,), inside the range of `lengths`.
    """
    after = np.clip(np.searchsorted(lengths, tokens), 1, lengths.size - 1)
    before, each = after - 1, np.arange(times.shape[0])
    share = (tokens - lengths[before]) / (lengths[after] - lengths[before])
    per_token = times / lengths
    between = per_token[each, before] * (1 - share) + per_token[each, after] * share
    return tokens * between


def crossings(lengths: Floats, times: Floats, one: Floats, repetition: Repetition) -> Floats:
    """Length from which on the repetition is faster at every compared length, (draws,).

    Minus infinity if it is faster at all of them, infinity if it is slower at the last one.

    Args:
        lengths: (n,), rising, n at least 1, none below `repetition.first`.
        times: (draws, n), to read each length at once.
        one: (draws,), one inference of the repetition.
        repetition: how many of these read a text.
    """
    is_slower = _repeated(one[:, None], lengths, repetition) >= times
    n = lengths.size
    last = n - 1 - np.argmax(is_slower[:, ::-1], axis=1)
    found = np.where(is_slower.any(axis=1), np.inf, -np.inf)
    inside = np.flatnonzero(is_slower.any(axis=1) & (last < n - 1))
    if inside.size:
        low, high = lengths[last[inside]], lengths[last[inside] + 1]
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            at_once = time_at(lengths, times[inside], middle)
            slower = _repeated(one[inside], middle, repetition) >= at_once
            low, high = np.where(slower, middle, low), np.where(slower, high, middle)
        found[inside] = high
    return found


def _repeated(one: Floats, tokens: Floats, repetition: Repetition) -> Floats:
    times: Floats = one * repetition.share(tokens)
    return times


def changes_of_order(lengths: Floats, times: Floats, one: float, repetition: Repetition) -> int:
    """How often the faster way changes along the compared lengths; more than once is noise."""
    is_slower = one * repetition.share(lengths) >= times
    return int(np.count_nonzero(is_slower[1:] != is_slower[:-1]))


def end_points(draws: Floats, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of (draws,) that may hold infinities: an end is one of the draws.

    Source: Efron and Tibshirani 1993, chapter 13.
    """
    ordered, tail = np.sort(draws), (1 - level) / 2
    low = int(np.floor(tail * (draws.size - 1)))
    high = int(np.ceil((1 - tail) * (draws.size - 1)))
    return float(ordered[low]), float(ordered[high])


def crossing_by_operations(
    lengths: npt.NDArray[np.int64], operations: Floats, one: float, repetition: Repetition
) -> float | None:
    """Length from which on the repetition needs fewer operations; its first length if always.

    The operations to read T tokens at once are a quadratic of T, because an exported graph compares
    every token with all T, masked or not. So three lengths determine them, and
    f0 + f1 T + f2 T^2 = one (1 + (T - first) / step) has two roots; the larger one counts.

    Args:
        lengths: (n,), unlike.
        operations: (n,), of one inference that reads each length at once.
        one: operations of one inference of the repetition.
        repetition: how many of these read a text.

    Returns:
        `None` with fewer than three lengths, for operations that do not follow a quadratic, or for
        a quadratic without a square: a network without attention.
    """
    if lengths.size < 3:
        return None
    scale = float(lengths.max())
    fitted = np.polynomial.Polynomial.fit(lengths / scale, operations, 2, domain=[-1, 1])
    f0, f1, f2 = (float(one) for one in fitted.convert().coef.tolist())
    misfit = np.abs(fitted(lengths / scale) - operations) / operations
    if misfit.max() > _EXACT or f2 <= _EXACT * operations.max():
        return None
    slope, start = one / repetition.step * scale, repetition.first / scale
    constant = one * (1 - repetition.first / repetition.step)
    # A positive square: the repetition is cheaper beyond the larger root, always without one.
    discriminant = (f1 - slope) ** 2 - 4 * f2 * (f0 - constant)
    if discriminant < 0:
        return float(repetition.first)
    root = (slope - f1 + np.sqrt(discriminant)) / (2 * f2)
    return float(max(root, start) * scale)


class Strategy(StrEnum):
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

    strategy: Strategy
    sizes: str
    cell: ReadingCell
    repetition: Repetition

    def is_repeated(self, tokens: int) -> bool:
        """Whether so many tokens fill a segment, or need more than one window."""
        first = self.repetition.first
        return tokens > first or (self.strategy is Strategy.HMT and tokens == first)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingTime(CellRow):
    """The time of one way to read a text of one length; `None` has its `reason`.

    Attributes:
        speed_up: time of vanilla over the time here; `None` if vanilla was not measured.
    """

    strategy: Strategy
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

    strategy: Strategy
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
                strategy=Strategy.WINDOW,
                sizes=f"window {size}, stride {step}",
                cell=cell,
                repetition=Repetition(first=size, step=step),
            )
    for cell in place.segments:
        yield Way(
            strategy=Strategy.HMT,
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
            yield _time(place, tokens, None)
            yield from (_time(place, tokens, way) for way in ways if way.is_repeated(tokens))


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


def _time(place: ReadingPlace, tokens: int, way: Way | None) -> ReadingTime:
    """The time of a way, or of vanilla; the latter has no speed-up."""
    vanilla = place.prompts.get(tokens)
    cell, inferences = (way.cell, way.repetition.inferences(tokens)) if way else (vanilla, 1)
    strategy = way.strategy if way else Strategy.VANILLA
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

"""The ways to read a text that a place was measured for, and their time by length."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from fleetrank.analysis.arrays.ranking import Floats
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.statistics.reading.crossover import Repetition
from fleetrank.analysis.statistics.reading.reading_cells import ReadingCell, ReadingPlace
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.foundation.inputs.workload import LARGEST_LENGTH


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

    @property
    def key(self) -> tuple[str, str]:
        """Equal for the same way on another platform, or of another model."""
        return self.strategy.value, self.sizes

    def is_repeated(self, tokens: int) -> bool:
        """Whether so many tokens fill a segment, or need more than one window."""
        first = self.repetition.first
        return tokens > first or (self.strategy is Strategy.HMT and tokens == first)

    def time_ns(self, tokens: int) -> float:
        """Median time to read so many tokens."""
        return self.repetition.inferences(tokens) * self.cell.latency_ns

    def draws_ns(self, tokens: int) -> Floats | None:
        """Times in resamples of the processes, (draws,); `None` if the cell has none."""
        draws = self.cell.draws_ns
        return None if draws is None else self.repetition.inferences(tokens) * draws


def stride_of(selection: Selection) -> int | None:
    """Tokens between the starts of two windows, if the user set them.

    Raises:
        AnalysisError: it is not a whole number from 1.
    """
    given = setting(selection, "stride", 0.0)
    if given == 0 and "stride" not in dict(selection.settings):
        return None
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

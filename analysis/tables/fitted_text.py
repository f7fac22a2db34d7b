"""Makes columns of text fit a width: sentences are shortened or hidden, then the last columns."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleetrank.analysis.tables.values import MISSING
from fleetrank.foundation.wording import count_of

PIPE_WIDTH = 200
"""Letters of a line in a pipe: a log shows it, and a platform key fits three times."""
SENTENCE = 100
"""A longer text is a sentence, and less wanted than a figure: reasons and platforms are shorter."""
REASON = "reason"
"""The column that says why figures of a row are missing."""
_MAX_REASONS = 4
_CUT = "..."
_GAP = 2
"""Spaces between two columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Columns that fit.

    Attributes:
        columns: name to cells, in the given order.
        hidden: names of the columns that are left out.
        is_cut: whether a text was shortened.
        reasons: what `sentences_of_reasons` gives for a column of reasons that is left out.
    """

    columns: Mapping[str, list[str]]
    hidden: tuple[str, ...]
    is_cut: bool
    reasons: tuple[str, ...] = ()

    def notes(self, remedy: str) -> list[str]:
        """What is missing and how to get it; empty if nothing is."""
        missing = [f"Hidden columns: {', '.join(self.hidden)}."] if self.hidden else []
        if self.is_cut:
            missing.append(f"Texts that end in {_CUT} are shortened.")
        return [*self.reasons, *missing, remedy] if missing else []


def fitted(columns: Mapping[str, Sequence[str]], width: int) -> Fitted:
    """The columns, with lines of at most `width` letters if one column alone fits."""
    kept = {name: list(cells) for name, cells in columns.items()}
    hidden: list[str] = []
    is_cut = False
    while (excess := _line(kept) - width) > 0:
        long = [name for name in kept if _widest(kept[name]) > SENTENCE]
        spare = sum(_widest(kept[name]) - SENTENCE for name in long)
        if long and (spare >= excess or len(kept) == 1 or long == [next(iter(kept))]):
            longest = max(long, key=lambda name: _widest(kept[name]))
            most = max(SENTENCE, _widest(kept[longest]) - excess)
            kept[longest] = [_shortened(cell, most) for cell in kept[longest]]
            is_cut = True
        elif len(kept) > 1:
            name = (long or list(kept))[-1]
            del kept[name]
            hidden.append(name)
        else:
            break
    hidden.sort(key=list(columns).index)
    reasons = tuple(sentences_of_reasons(columns[REASON])) if REASON in hidden else ()
    return Fitted(columns=kept, hidden=tuple(hidden), is_cut=is_cut, reasons=reasons)


def sentences_of_reasons(cells: Sequence[str]) -> Iterator[str]:
    """A sentence for each of the most frequent reasons, in place of the column."""
    found = Counter(cell for cell in cells if cell != MISSING)
    for reason, n in found.most_common(_MAX_REASONS):
        yield f"{REASON} of {count_of(n, 'row')}: {reason}."
    if (more := len(found) - _MAX_REASONS) > 0:
        yield f"{count_of(more, 'more reason')} in column {REASON}."


def _line(columns: Mapping[str, Sequence[str]]) -> int:
    widths = (max(len(name), _widest(cells)) for name, cells in columns.items())
    return sum(widths) + _GAP * (len(columns) - 1)


def _widest(cells: Sequence[str]) -> int:
    return max(map(len, cells), default=0)


def _shortened(cell: str, most: int) -> str:
    return cell if len(cell) <= most else cell[: most - len(_CUT)] + _CUT

"""Text of a published table that has two readings: it is refused, with both of them.

A guess would store a figure a thousand times too large, or the median of unlike things, and nothing
later could notice.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.importers.release import read_number
from fleetrank.foundation.visible_text import shortened

_WITH_COMMA = re.compile(r"[+-]?[\d.]*,[\d.,]*", re.ASCII)
_CLEAR_GROUPS = re.compile(r"[+-]?\d{1,3}(,\d{3}){2,}(\.\d*)?|[+-]?\d{1,3}(,\d{3})+\.\d*", re.ASCII)
"""Two groups of thousands, or a group and a decimal point: no comma can be the decimal one."""
_ONE_GROUP = re.compile(r"[+-]?\d{1,3},\d{3}", re.ASCII)
_DOTTED_GROUPS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d*)?", re.ASCII)
_NAMES_A_REPEAT = re.compile(
    r"(^|[^a-z])(run|repeat|rep|repetition|iter|iteration|trial|attempt|index|idx|seed|round|pass|"
    r"no|nr|number|id|uuid|job|date|time|timestamp|utc|when|created|started|finished|commit|hash|"
    r"sha|build|host|url|link|path|file|filename|log|note|notes|comment|error|message)($|[^a-z])"
)
"""Words of a column that numbers or describes repeats, in place of a setting."""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?|\d\d:\d\d(:\d\d)?.*", re.ASCII)


MOST_APART = 2.0
"""Repeats of one measurement differ by less: a busy host makes a latency up to 95 % longer."""


def number_in(text: str, decimal: str | None, where: str) -> float | None:
    """A figure; `None` for text that is none.

    Args:
        text: the field of the table.
        decimal: the decimal sign that the mapping states; `None` if it states none.
        where: line and column, for the message.

    Raises:
        AnalysisError: the sign is not stated and the comma can be one, or the other sign is used.
    """
    words = text.strip()
    if decimal == ",":
        if _DOTTED_GROUPS.fullmatch(words):
            words = words.replace(".", "")
        elif "." in words and read_number(words) is not None:
            raise AnalysisError(
                f"{where} is {words}, with a decimal point",
                'the mapping states decimal = ",": correct one of them',
            )
        return read_number(words.replace(",", "."))
    is_certain = decimal == "." or _CLEAR_GROUPS.fullmatch(words)
    if is_certain or not _WITH_COMMA.fullmatch(words):
        return read_number(words)
    whole, _, rest = shortened(words).partition(",")
    thousands = f"{whole}{rest} or " if _ONE_GROUP.fullmatch(words) else ""
    raise AnalysisError(
        f"{where} is {shortened(words)}, which can be {thousands}{whole.replace('.', '')}.{rest}",
        'write decimal = "," or decimal = "." under [source] of the mapping',
    )


Pooled = tuple[Sequence[str], float | None, Mapping[str, str]]
"""What makes the cell of a line, its latency, and its fields."""


def unlike_repeats(pooled: Iterable[Pooled], known: Iterable[str], where: str) -> Iterator[str]:
    """Notes on columns in which lines of one cell differ, although the mapping does not use them.

    Lines of one cell are its repeats. A column is harmless if it numbers or describes them, or if
    it holds another measured figure. Text that differs, and numbers that return in other cells,
    look like a setting, or like the name of the quantity that the line is about.

    Args:
        pooled: the lines.
        known: columns that the mapping uses or ignores.
        where: name of the table.

    Raises:
        AnalysisError: the latencies of one cell differ with such a column by more than
            `MOST_APART`, so they are not repeats of one measurement.
    """
    skipped, cells = set(known), defaultdict[tuple[str, ...], list[Pooled]](list)
    for one in pooled:
        cells[tuple(one[0])].append(one)
    unlike = defaultdict[str, list[dict[str, list[float]]]](list)
    for lines in cells.values():
        for column, by_value in _by_column(lines if len(lines) > 1 else []).items():
            if len(by_value) > 1:
                unlike[column].append(by_value)
    for column, found in unlike.items():
        if column in skipped or "\0" in column or _NAMES_A_REPEAT.search(column.lower()):
            continue
        is_text = any(read_number(one) is None and not _MOMENT.fullmatch(one) for one in found[0])
        # Several cells with the same few values, as cells of a setting have them.
        returns = len(found) > 1 and all(one.keys() == found[0].keys() for one in found)
        if not (is_text or returns):
            continue
        first, second, *_ = sorted(found[0])
        said = (
            f"{where}: lines of one cell differ in column '{shortened(column)}' "
            f"('{shortened(first)}', '{shortened(second)}'), which the mapping does not use"
        )
        if any(_apart(by_value) > MOST_APART for by_value in found):
            raise AnalysisError(
                said,
                "they can be repeats or different things: choose lines with [where], map the "
                f'column, or write ignored = ["{shortened(column)}"] under [source]',
            )
        yield f"{said}: they count as its repeats."


def _by_column(lines: Iterable[Pooled]) -> Mapping[str, dict[str, list[float]]]:
    """Column to the latencies of each of its values."""
    columns = defaultdict[str, dict[str, list[float]]](dict)
    for _, latency, line in lines:
        for column, text in line.items():
            if text.strip():
                found = columns[column].setdefault(text.strip(), [])
                found += [] if latency is None else [latency]
    return columns


def _apart(by_value: Mapping[str, list[float]]) -> float:
    """The largest median of a value over the smallest; 1 if none is known."""
    medians = [median(one) for one in by_value.values() if one]
    least = min(medians, default=0.0)
    return max(medians) / least if least > 0 else 1.0

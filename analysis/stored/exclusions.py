"""Rows that a person leaves out: the file that says which, and what it makes of the rows.

The rows themselves stay as they are stored. Whoever reads them gets a column more, `excluded`,
and what counts is what has none.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import polars as pl

from fleetrank.analysis.counting import count_of
from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.columns import EXCLUDED
from fleetrank.analysis.stored.patterns import matches
from fleetrank.foundation.checksum import without_checksum
from fleetrank.foundation.errors import BadFileError, MissingFileError
from fleetrank.foundation.small_file import read_small_text

FILE = "exclusions.json"
"""In the results folder."""
MAX_REASON = 200
"""Letters: it stands in a note under every table."""
MAX_NAME = 500
"""Letters of a sweep's id or a pattern; no platform key is longer."""
MAX_EXCLUSIONS = 1000
"""Each is a comparison per row; as many are a sweep that should go as a whole."""
_MAX_FILE_BYTES = 4 << 20
"""Room for that many at their longest, in letters of four bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """One decision to leave rows out.

    Attributes:
        number: from 1; never given twice.
        sweep_id: there need be no such sweep (any more).
        pattern: a model's name or a platform key, in which `*` stands for anything; `None` is the
            whole sweep.
        reason: one line.
        excluded_utc: when it was decided, ISO 8601.
    """

    number: int
    sweep_id: str
    pattern: str | None
    reason: str
    excluded_utc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusions:
    """All that hold, by number, and the number that the next one gets."""

    next_number: int = 1
    entries: tuple[Exclusion, ...] = ()


def read_exclusions(results: Path) -> Exclusions:
    """What `<workspace>/results/exclusions.json` says; none where there is no such file.

    Raises:
        AnalysisError: it cannot be read or is no such record. Nothing is shown then: figures with
            rows that somebody wanted out would look like figures without them.
    """
    path = results / FILE
    try:
        if (text := _content(path)) is None:
            return Exclusions()
        content = json.loads(text)
        return _parse(without_checksum(content) if isinstance(content, dict) else content)
    except (BadFileError, ValueError, RecursionError) as error:
        # Only the first line: a hostile file may put anything into a parser's message.
        text = getattr(error, "message", str(error)).removeprefix(f"{path} ")
        said = text.partition("\n")[0][:MAX_REASON]
        raise AnalysisError(
            f"{path} is not a record of exclusions: {said}",
            "restore it; if you changed it by hand, delete its entry 'checksum'; or delete the "
            "file: all rows count again then",
        ) from error


def excluded_column(exclusions: Exclusions) -> pl.Expr:
    """The column `excluded` of stored rows: the reason of the first that covers them, or null."""
    reasons = [pl.when(covers(one)).then(pl.lit(one.reason)) for one in exclusions.entries]
    none = pl.lit(None, dtype=EXCLUDED.dtype)
    return pl.coalesce(*reasons, none).alias(EXCLUDED.name)


def covers(exclusion: Exclusion) -> pl.Expr:
    """Whether stored rows are those that are meant; never null."""
    is_meant = pl.col("sweep_id") == exclusion.sweep_id
    if exclusion.pattern is not None:
        is_meant &= fits(exclusion.pattern)
    return is_meant.fill_null(value=False)


def fits(pattern: str) -> pl.Expr:
    """Whether the model or the platform of a row is what the pattern says."""
    return matches("model", pattern) | matches("platform_key", pattern)


def not_excluded(frame: pl.LazyFrame) -> pl.LazyFrame:
    """The rows that count."""
    return frame.filter(pl.col(EXCLUDED.name).is_null())


def exclusion_notes(frame: pl.LazyFrame) -> tuple[str, ...]:
    """What a table owes its reader about the excluded among some rows, one note per reason."""
    left_out = (
        frame.filter(pl.col(EXCLUDED.name).is_not_null())
        .group_by(EXCLUDED.name)
        .agg(pl.len(), pl.col("sweep_id").n_unique())
        .sort(EXCLUDED.name)
        .collect()
    )
    return tuple(
        f"Dropped: {count_of(rows, 'row')} of {count_of(sweeps, 'sweep')} excluded by hand: "
        f"{reason.rstrip('.')}."
        for reason, rows, sweeps in left_out.iter_rows()
    )


def is_reason(text: str) -> bool:
    """Whether a text can be a reason: trimmed, one line that can be printed, not too long."""
    return 0 < len(text) <= MAX_REASON and text == text.strip() and text.isprintable()


def _content(path: Path) -> str | None:
    try:
        return read_small_text(path, _MAX_FILE_BYTES)
    except MissingFileError:
        return None


def _parse(content: object) -> Exclusions:
    raw = content.get("exclusions") if isinstance(content, dict) else None
    if not isinstance(raw, list) or not isinstance(content, dict):
        raise ValueError("there is no list 'exclusions' in it")  # noqa: TRY004 - a damaged file
    if len(raw) > MAX_EXCLUSIONS:
        raise ValueError(f"more than {MAX_EXCLUSIONS} exclusions")
    entries = sorted((_entry(one) for one in raw), key=lambda one: one.number)
    numbers = [one.number for one in entries]
    next_number = _number(content, "next_number")
    if len(set(numbers)) < len(numbers) or next_number <= max(numbers, default=0):
        raise ValueError("a number stands for two exclusions")
    return Exclusions(next_number=next_number, entries=tuple(entries))


def _entry(raw: object) -> Exclusion:
    if not isinstance(raw, dict):
        raise ValueError("an exclusion is not an object")  # noqa: TRY004 - a damaged file
    reason = _text(raw, "reason")
    if not is_reason(reason):
        raise ValueError("a reason is empty, too long or not one line")
    stamp = _text(raw, "excluded_utc")
    datetime.fromisoformat(stamp)
    return Exclusion(
        number=_number(raw, "number"),
        sweep_id=_text(raw, "sweep_id"),
        pattern=None if raw.get("pattern") is None else _text(raw, "pattern"),
        reason=reason,
        excluded_utc=stamp,
    )


def _text(raw: dict[object, object], name: str) -> str:
    text = raw.get(name)
    # Half a surrogate pair is a text in JSON and none in any column.
    if not isinstance(text, str) or len(text) > MAX_NAME or not text.isprintable():
        raise ValueError(f"'{name}' is missing, too long or not one line")
    return text


def _number(raw: dict[object, object], name: str) -> int:
    number = raw.get(name)
    if type(number) is not int or not 0 < number < 2**63:
        raise ValueError(f"'{name}' is not a number from 1 on")
    return number

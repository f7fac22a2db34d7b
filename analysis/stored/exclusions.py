"""The file of rows that a person excludes, and how it is applied to the rows.

The stored rows do not change. A reader gets one more column, `excluded`; a row counts if it is
null.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.columns import EXCLUDED
from fleetrank.analysis.stored.name_patterns import CELL_WORD, fits
from fleetrank.foundation.checksums import without_checksum
from fleetrank.foundation.errors import BadFileError, MissingFileError
from fleetrank.foundation.small_file import read_small_text
from fleetrank.foundation.wording import count_of
from fleetrank.foundation.workload import IMAGE

ANY_SWEEP = "*"
"""In place of a sweep's id: all sweeps, also later ones."""
FILE = "exclusions.json"
"""In the results folder."""
COPY = f"{FILE}.copy"
"""Beside it: without a copy, no user would notice that the file was deleted."""
MAX_REASON = 200
"""Maximum letters of a reason: a note under every table shows it."""
MAX_NAME = 500
"""Maximum letters of a sweep's id or a pattern; no platform key is longer."""
MAX_EXCLUSIONS = 1000
"""Each exclusion costs a comparison per row; with more, exclude the whole sweep instead."""
_MAX_FILE_BYTES = 4 << 20
"""Size of that many exclusions of maximum length, at four bytes a letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """One decision to exclude rows.

    Attributes:
        number: from 1; never reused.
        sweep_id: the sweep does not have to exist (any more); or `ANY_SWEEP`.
        pattern: a model's name, a workload, a platform key, `MODEL on PLATFORM` or
            `MODEL WORKLOAD on PLATFORM`; `*` matches any text. `None` is the whole sweep.
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
    """All active exclusions by number, and the next free number."""

    next_number: int = 1
    entries: tuple[Exclusion, ...] = ()


def read_exclusions(results: Path) -> Exclusions:
    """What `<workspace>/results/exclusions.json` contains; without it and its copy: no exclusion.

    Raises:
        AnalysisError: it was deleted, cannot be read or holds no valid record. The caller must not
            show figures then: excluded rows would count, and a reader could not see it.
    """
    found = _read(results / FILE)
    if found is not None:
        return found
    kept = _read(results / COPY) or Exclusions()
    if kept.entries:
        raise AnalysisError(
            f"{results / FILE} was deleted; it had {count_of(len(kept.entries), 'exclusion')}",
            f"copy {results / COPY} to {FILE}; or delete it too, and all rows count again",
        )
    return Exclusions()


def _read(path: Path) -> Exclusions | None:
    try:
        if (text := _content(path)) is None:
            return None
        content = json.loads(text)
        return _parse(without_checksum(content) if isinstance(content, dict) else content)
    except (BadFileError, ValueError, RecursionError) as error:
        # Only the first line: a hostile file can control the text of a parser's message.
        text = getattr(error, "message", str(error)).removeprefix(f"{path} ")
        said = text.partition("\n")[0][:MAX_REASON]
        raise AnalysisError(
            f"{path} is not a record of exclusions: {said}",
            f"restore it, {COPY} beside it is its copy; if you edited it, delete its entry "
            "'checksum'; or delete both files, and all rows count again",
        ) from error


def excluded_column(exclusions: Exclusions) -> pl.Expr:
    """The column `excluded`: the reason of the first exclusion that covers a row, or null."""
    reasons = [pl.when(covers(one)).then(pl.lit(one.reason)) for one in exclusions.entries]
    none = pl.lit(None, dtype=EXCLUDED.dtype)
    return pl.coalesce(*reasons, none).alias(EXCLUDED.name)


def covers(exclusion: Exclusion) -> pl.Expr:
    """Whether the exclusion covers a row; never null."""
    is_any = exclusion.sweep_id == ANY_SWEEP
    is_meant = pl.lit(value=True) if is_any else pl.col("sweep_id") == exclusion.sweep_id
    if exclusion.pattern is not None:
        is_meant &= fits(exclusion.pattern)
    return is_meant.fill_null(value=False)


def cell_pattern(model: str, platform_key: str, workload: str) -> str:
    """The pattern of one model on one platform; only a workload with tokens is named."""
    what = model if workload == str(IMAGE) else f"{model} {workload}"
    return f"{what}{CELL_WORD}{platform_key}"


def not_excluded(frame: pl.LazyFrame) -> pl.LazyFrame:
    """The rows that are not excluded."""
    return frame.filter(pl.col(EXCLUDED.name).is_null())


def exclusion_notes(frame: pl.LazyFrame) -> tuple[str, ...]:
    """The notes of a table about excluded rows, one note per reason."""
    left_out = (
        frame.filter(pl.col(EXCLUDED.name).is_not_null())
        .group_by(EXCLUDED.name)
        .agg(pl.len(), pl.col("sweep_id").n_unique())
        .sort(EXCLUDED.name)
        .collect()
    )
    return tuple(
        f"Dropped: {count_of(rows, 'row')} of {count_of(sweeps, 'sweep')} excluded: "
        f"{reason.rstrip('.')}."
        for reason, rows, sweeps in left_out.iter_rows()
    )


def is_reason(text: str) -> bool:
    """Whether a text can be a reason: one trimmed, printable line that is not too long."""
    return 0 < len(text) <= MAX_REASON and text == text.strip() and text.isprintable()


def _content(path: Path) -> str | None:
    try:
        return read_small_text(path, _MAX_FILE_BYTES)
    except MissingFileError:
        return None


def _parse(content: object) -> Exclusions:
    raw = content.get("exclusions") if isinstance(content, dict) else None
    if not isinstance(raw, list) or not isinstance(content, dict):
        raise ValueError("it lacks the list 'exclusions'")  # noqa: TRY004 - a damaged file
    if len(raw) > MAX_EXCLUSIONS:
        raise ValueError(f"more than {MAX_EXCLUSIONS} exclusions")
    entries = sorted((_entry(one) for one in raw), key=lambda one: one.number)
    numbers = [one.number for one in entries]
    next_number = _number(content, "next_number")
    if len(set(numbers)) < len(numbers) or next_number <= max(numbers, default=0):
        raise ValueError("one number names two exclusions")
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
    # JSON allows half a surrogate pair; a text column does not.
    if not isinstance(text, str) or len(text) > MAX_NAME or not text.isprintable():
        raise ValueError(f"'{name}' is missing, too long or not one line")
    return text


def _number(raw: dict[object, object], name: str) -> int:
    number = raw.get(name)
    if type(number) is not int or not 0 < number < 2**63:
        raise ValueError(f"'{name}' is not a number from 1 on")
    return number

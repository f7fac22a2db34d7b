"""Writes the exclusions of a user; `analysis.stored.selection` reads them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from fleetrank.analysis.stored.selection import (
    COPY,
    FILE,
    MAX_EXCLUSIONS,
    MAX_NAME,
    MAX_REASON,
    Exclusion,
    Exclusions,
    is_reason,
    read_exclusions,
)
from fleetrank.orchestrator.errors import StoreError, UsageError
from fleetrank.orchestrator.store.small_files import locked, write_checked_object


def exclude(results: Path, sweep_id: str, pattern: str | None, reason: str) -> Exclusion:
    """Excludes a sweep, or its rows that match the pattern; no other file is written.

    Args:
        results: the results folder of a workspace.
        sweep_id: an existing sweep; this is not checked.
        pattern: a model's name, a platform key, or `MODEL on PLATFORM`; `*` stands for anything.
        reason: one line; leading and trailing spaces are removed.

    Raises:
        UsageError: the reason or the pattern is not valid, the same rows are already excluded, or
            there are too many exclusions.
        AnalysisError: the file of exclusions is damaged.
        StoreError: the file cannot be written; nothing changed.
    """
    reason = _checked_reason(reason)
    if pattern is not None and not (0 < len(pattern) <= MAX_NAME and pattern.isprintable()):
        raise UsageError(
            "the pattern is empty, too long or not one line",
            "name a model, a platform, or 'MODEL on PLATFORM'",
        )
    with _known(results) as known:
        _refuse_again(known, sweep_id, pattern)
        made = Exclusion(
            number=known.next_number,
            sweep_id=sweep_id,
            pattern=pattern,
            reason=reason,
            excluded_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        _write(results, made.number + 1, (*known.entries, made))
    return made


def take_back(results: Path, number: int) -> Exclusion:
    """Removes an exclusion, so that its rows count again; its number is not reused.

    Raises:
        UsageError: the exclusion does not exist.
        AnalysisError: the file of exclusions is damaged.
        StoreError: the file cannot be written; nothing changed.
    """
    with _known(results) as known:
        kept = tuple(one for one in known.entries if one.number != number)
        if len(kept) == len(known.entries):
            numbers = ", ".join(str(one.number) for one in kept) or "none"
            raise UsageError(f"exclusion {number} does not exist", f"existing: {numbers}")
        _write(results, known.next_number, kept)
    (taken,) = set(known.entries) - set(kept)
    return taken


def forget_sweep(results: Path, sweep_id: str) -> None:
    """Removes every exclusion of a sweep that is being deleted.

    Raises:
        AnalysisError: the file of exclusions is damaged.
        StoreError: the file cannot be written; nothing changed.
    """
    with _known(results) as known:
        kept = tuple(one for one in known.entries if one.sweep_id != sweep_id)
        if len(kept) < len(known.entries):
            _write(results, known.next_number, kept)


def adopt(results: Path, entries: Sequence[Exclusion]) -> None:
    """Adds the exclusions of a sweep that is being copied here, with new numbers.

    Raises:
        UsageError: there are too many exclusions.
        AnalysisError: the file of exclusions is damaged.
        StoreError: the file cannot be written; nothing changed.
    """
    with _known(results) as known:
        there = {(one.sweep_id, one.pattern) for one in known.entries}
        new = [one for one in entries if (one.sweep_id, one.pattern) not in there]
        if not new:
            return
        if len(known.entries) + len(new) > MAX_EXCLUSIONS:
            raise UsageError(
                f"there would be more than {MAX_EXCLUSIONS} exclusions",
                "exclude whole sweeps, or several models with a * pattern",
            )
        first = known.next_number
        added = [replace(one, number=first + place) for place, one in enumerate(new)]
        _write(results, first + len(added), (*known.entries, *added))


@contextmanager
def _known(results: Path) -> Iterator[Exclusions]:
    """What the file holds, which no other process changes meanwhile."""
    with locked(results / f".{FILE}.lock"):
        yield read_exclusions(results)


def _checked_reason(text: str) -> str:
    reason = text.strip()
    if not reason:
        raise UsageError("an exclusion needs a reason", "give `reason=why these rows mislead`")
    if not is_reason(reason):
        raise UsageError(
            f"the reason has {len(reason)} letters or is not one line",
            f"give one line of at most {MAX_REASON} letters",
        )
    return reason


def _refuse_again(known: Exclusions, sweep_id: str, pattern: str | None) -> None:
    for one in known.entries:
        if (one.sweep_id, one.pattern) == (sweep_id, pattern):
            raise UsageError(
                f"exclusion {one.number} already excludes the same rows: {one.reason}",
                f"`fleetrank results exclude` with `undo={one.number}` removes it",
            )
    if len(known.entries) >= MAX_EXCLUSIONS:
        raise UsageError(
            f"there are {MAX_EXCLUSIONS} exclusions already",
            "exclude whole sweeps, or several models with a * pattern, and undo the single ones",
        )


def _write(results: Path, next_number: int, entries: tuple[Exclusion, ...]) -> None:
    content = {"next_number": next_number, "exclusions": [asdict(one) for one in entries]}
    write_checked_object(results / FILE, content)
    with suppress(StoreError):  # the exclusion counts already
        write_checked_object(results / COPY, content)

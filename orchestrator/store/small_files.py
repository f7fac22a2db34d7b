"""The small files beside the rows: records, exclusions, the schema mark, and output of tools.

The output is kept so that a better parser can read it again.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from pydantic import ValidationError

from fleetrank.analysis.stored.columns import SCHEMA_VERSION
from fleetrank.analysis.stored.exclusions import (
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
from fleetrank.analysis.stored.load import schema_version
from fleetrank.analysis.stored.sweep_record import RECORD_VERSION, SweepRecord, record_problems
from fleetrank.foundation.checksums import read_checked_object, with_checksum
from fleetrank.foundation.errors import BadFileError, reworded
from fleetrank.foundation.lease import open_lease, wait_for_lock
from fleetrank.orchestrator.durable import replace_file, storing
from fleetrank.orchestrator.errors import NewerSchemaError, StoreError, UsageError
from fleetrank.orchestrator.keys import RowKey
from fleetrank.orchestrator.rows import Row

_PATIENCE_S = 10.0
"""A process holds a lock only while it writes a few rows or one small file."""
RESTORE_RECORD = (
    "restore it from a copy; if you changed it by hand, delete its entry 'checksum'. The rows of "
    "the sweep are stored in other files"
)


def read_record_file(path: Path) -> SweepRecord:
    """Reads and checks the record of the sweep that the file is named after.

    Raises:
        NewerSchemaError: a newer fleetrank wrote the record.
        StoreError: its checksum or an entry is wrong; the message names the entry.
    """
    try:
        return _record_of(path, read_checked_object(path))
    except BadFileError as error:
        raise StoreError(
            f"{path} is damaged: {error.message.removeprefix(f'{path} ')}", RESTORE_RECORD
        ) from error
    except ValidationError as error:
        raise StoreError(
            f"{path} is damaged: {'; '.join(record_problems(error))}", RESTORE_RECORD
        ) from error


def _record_of(path: Path, entries: Mapping[str, object]) -> SweepRecord:
    version = entries.get("record_version")
    if isinstance(version, int) and version > RECORD_VERSION:
        raise NewerSchemaError(
            f"{path} has record version {version}; this fleetrank knows {RECORD_VERSION}",
            "use the newer fleetrank that wrote it",
        )
    if "sweep_id" not in entries or "stretches" in entries:
        raise StoreError(f"{path} is damaged: it is not the record of a sweep", RESTORE_RECORD)
    record = SweepRecord.model_validate(entries)
    if record.sweep_id != path.stem:
        raise StoreError(
            f"{path} is damaged: its entry 'sweep_id' is {record.sweep_id!r}", RESTORE_RECORD
        )
    return record


def write_checked_object(path: Path, content: Mapping[str, object]) -> None:
    """Writes a JSON object with its checksum; readers see the complete old or new file.

    Raises:
        StoreError: the disk is full or the folder cannot be written; nothing changed.
    """
    text = json.dumps(with_checksum(content), indent=2, ensure_ascii=False) + "\n"
    replace_file(path, text.encode())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock for the moment in which a process reads and writes, so that none overwrites.

    Raises:
        StoreError: another process holds it for longer, or it cannot be made.
    """
    deadline_s = monotonic() + _PATIENCE_S
    with ExitStack() as stack:
        with storing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(open_lease(path))
        if not wait_for_lock(file, lambda: monotonic() >= deadline_s):
            raise StoreError(f"{path} is locked by another process", "try again")
        yield


def refuse_newer(root: Path) -> None:
    """Checks the schema mark of a results folder; a folder without one is new.

    Raises:
        NewerSchemaError: a newer fleetrank wrote the folder.
        StoreError: the mark is damaged.
    """
    with reworded(StoreError, BadFileError):
        version = schema_version(root)
    if version is not None and version > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"{root} has schema version {version}; this fleetrank knows {SCHEMA_VERSION}",
            "use the newer fleetrank that wrote it, or another workspace",
        )


_FOLDER = "raw"


def raw_folder(results: Path, sweep_id: str) -> Path:
    """Returns the folder of the logs of one sweep."""
    return results / _FOLDER / sweep_id


def set_aside(results: Path, row: Row) -> Row:
    """Moves a row's tool output into a separate file; the row keeps the file's name.

    The name is made from the row's key. The file is not synced yet.

    Raises:
        StoreError: the disk is full.
    """
    key = RowKey.of(row)
    file = f"{key.cell_key}-{key.repeat}-{key.attempt}.log.gz"
    name = Path(_FOLDER) / key.sweep_id / file
    # Without a time stamp equal logs are equal files.
    content = gzip.compress(str(row["raw_log"]).encode("utf-8", "replace"), mtime=0)
    replace_file(results / name, content, is_synced=False)
    return {**row, "raw_log": str(name)}


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
        for path in results.glob(f".{FILE}.*.tmp"):
            path.unlink(missing_ok=True)  # a killed process left it
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

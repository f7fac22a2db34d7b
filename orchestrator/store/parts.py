"""Makes the Parquet parts of a sweep from its journal, and reads them.

A part holds the rows of one table in one stretch of the journal. The last stretch grows until it
has `STRETCH_BYTES`. The list of parts is the only thing that says what is published: a kill at any
point leaves the old or the new state.
"""

import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import cast

import polars as pl

from fleetrank.analysis.errors import DamagedPartError
from fleetrank.analysis.stored.columns import ROW_KEY
from fleetrank.analysis.stored.part_list import (
    MEASUREMENTS,
    PARTS,
    REPAIR,
    Part,
    PartList,
    Stretch,
    damage_error,
    digest_of,
    empty_table,
    list_path,
    part_files,
    part_path,
    parts_folder,
    read_list,
    read_part,
)
from fleetrank.foundation.codec import to_plain
from fleetrank.foundation.errors import reworded
from fleetrank.orchestrator.durable import replace_file, storing, sync_file
from fleetrank.orchestrator.errors import StoreError
from fleetrank.orchestrator.rows import Row
from fleetrank.orchestrator.store.journal import Entry, Journal
from fleetrank.orchestrator.store.small_files import write_checked_object
from fleetrank.orchestrator.table_fit import SCHEMAS

STRETCH_BYTES = 8 << 20
"""Some 2,000 rows of 100 samples: fast to make again, and 500 files for 10^6 rows."""
_LONGEST_REPEAT_S = 86_400
"""Of a repeat whose time can be an estimate; most take seconds."""
_DOES_NOT_FIT = (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError)


def to_frame(rows: Iterable[Row], table: str = MEASUREMENTS) -> pl.DataFrame:
    """Returns rows as a table of exactly the declared columns; missing values are null.

    Raises:
        StoreError: a value does not fit its column.
    """
    schema, records = SCHEMAS[table], list(rows)
    if not records:
        return empty_table(tuple(schema.items()))
    try:
        return pl.DataFrame([_typed(row, table) for row in records], schema=schema)
    except _DOES_NOT_FIT as error:
        keys = [{n: row.get(n) for n in ROW_KEY} for row in records if not _fits(row, table)]
        raise StoreError(
            f"rows of the journal do not fit the table: {keys}: {error}",
            "fix or delete their lines in the journal; the other rows are kept",
        ) from error


def _fits(row: Row, table: str) -> bool:
    try:
        pl.DataFrame([_typed(row, table)], schema=SCHEMAS[table])
    except _DOES_NOT_FIT:
        return False
    return True


@cache
def _stamps(table: str) -> tuple[str, ...]:
    return tuple(n for n, dtype in SCHEMAS[table].items() if isinstance(dtype, pl.Datetime))


def _typed(row: Row, table: str) -> Row:
    """Returns the declared columns of a row with parsed times; their texts vary in length."""
    record = {name: row.get(name) for name in SCHEMAS[table]}
    for name in _stamps(table):
        if (text := record[name]) is not None:
            stamp = datetime.fromisoformat(str(text))
            # A time without a zone is UTC, because fleetrank writes only UTC.
            record[name] = stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)
    return record


def journal_rows(frame: pl.DataFrame, table: str = MEASUREMENTS) -> Iterator[Row]:
    """Yields the rows of a table in the form of journal lines: times are text."""
    for row in frame.iter_rows(named=True):
        for name in _stamps(table):
            if isinstance(stamp := row[name], datetime):
                row[name] = stamp.isoformat()
        yield row


def to_parquet(frame: pl.DataFrame) -> bytes:
    """Returns a table of any columns as the bytes of a Parquet file.

    The file is built in memory, because the error of Polars does not name a full disk.
    """
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", compression_level=1)
    return buffer.getvalue()


@dataclass(slots=True, kw_only=True)
class _Draft:
    """A stretch that is being read from the journal."""

    start: int
    end: int
    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    n_lines: int = 0
    n_bad: int = 0
    rows: dict[str, list[Row]] = field(default_factory=dict)

    def add(self, line: bytes) -> None:
        self.digest.update(line)
        self.end += len(line)
        self.n_lines += 1

    def stretch(self, parts: Iterable[Part]) -> Stretch:
        return Stretch(
            start=self.start,
            end=self.end,
            sha256=self.digest.hexdigest(),
            n_lines=self.n_lines,
            n_bad=self.n_bad,
            parts=tuple(parts),
        )


def publish(results: Path, journal: Journal) -> int:
    """Makes the parts that are missing; a second run changes nothing.

    Returns:
        How many parts were written.

    Raises:
        StoreError: a part is damaged, the journal is not the one that was published, or the disk is
            full.
    """
    with reworded(StoreError, DamagedPartError):
        found = read_list(results, journal.sweep_id)
        stale = [one for one in found.stretches if not _is_newest(results, found, one)]
    small = (one for one in found.stretches[-1:] if one.end - one.start < STRETCH_BYTES)
    growing = next((one for one in small if one not in stale), None)
    start = found.end if growing is None else growing.start
    start = min([start, *(one.start for one in stale)])
    ends = [one.end for one in found.stretches if one.start >= start and one is not growing]
    if not stale and journal.state is None and not found.end:
        return 0
    _refuse_changed(journal, found)
    n_written = 0
    for draft in _drafts(journal, start, ends, growing):
        known = next((one for one in found.stretches if one.start == draft.start), None)
        if known is growing and known is not None and draft.end == known.end:
            continue
        if known is not None and known is not growing:
            if known.sha256 != draft.digest.hexdigest():
                raise _changed(journal)
            if known not in stale:
                continue
        found, n_parts = _store(results, found, draft, growing)
        n_written += n_parts
    _remove_unlisted(results, found)
    return n_written


def _is_newest(results: Path, found: PartList, stretch: Stretch) -> bool:
    """Whether all parts of a stretch are there; raises `DamagedPartError` for a damaged one."""
    for part in stretch.parts:
        path = part_path(results, found.sweep_id, part)
        digest = digest_of(path)
        if digest not in {part.sha256, part.before_sha256, None}:
            raise damage_error(path)
        if digest != part.sha256:
            return False
    return True


def _refuse_changed(journal: Journal, found: PartList) -> None:
    """Rows that are appended to a journal that was cut would never be published."""
    if journal.path.exists():
        with storing(journal.path):
            sync_file(journal.path)
        if journal.path.stat().st_size < found.end:
            raise _changed(journal)
    elif found.end and not journal.packed_path.exists():
        raise _changed(journal)


def _changed(journal: Journal) -> StoreError:
    return StoreError(
        f"{journal.path} is not the journal any more that was published: it was cut or changed",
        f"run {REPAIR}: it keeps the damaged file under another name, and writes a new one with "
        "the rows of the Parquet parts",
    )


def refuse_changed_journal(results: Path, journal: Journal) -> None:
    """Compares the whole journal with what was published of it, before rows are added.

    Raises:
        StoreError: it was cut or changed, or the list of the parts is damaged.
    """
    with reworded(StoreError, DamagedPartError):
        found = read_list(results, journal.sweep_id)
    for stretch, (digest, _) in zip(
        found.stretches, stretch_digests(journal, found.stretches), strict=True
    ):
        if digest != stretch.sha256:
            raise _changed(journal)


def stretch_digests(journal: Journal, stretches: Sequence[Stretch]) -> Iterator[tuple[str, int]]:
    """Yields the SHA-256 of each stretch as the journal has it, and its number of lines.

    Raises:
        StoreError: the packed journal is damaged.
    """
    blocks, rest = journal.blocks(), b""
    for stretch in stretches:
        digest, left, n_lines = hashlib.sha256(), stretch.end - stretch.start, 0
        while left and (rest := rest or next(blocks, b"")):
            piece, rest = rest[:left], rest[left:]
            digest.update(piece)
            n_lines += piece.count(b"\n")
            left -= len(piece)
        yield digest.hexdigest(), n_lines


def _drafts(
    journal: Journal, start: int, ends: Sequence[int], growing: Stretch | None
) -> Iterator[_Draft]:
    """Reads the journal from `start`: first the stretches with these ends, then new ones."""
    bounds = iter(ends)
    bound = next(bounds, None)
    draft = _Draft(start=start, end=start)
    for line in journal.lines(start):
        if not line.endswith(b"\n"):
            break  # its writer died, or is still writing
        if growing is not None and growing.start <= draft.end < growing.end:
            draft.add(line)
            draft.n_bad = growing.n_bad
            is_same = draft.end == growing.end and draft.digest.hexdigest() == growing.sha256
            if draft.end >= growing.end and not is_same:
                raise _changed(journal)
            continue
        draft.add(line)
        item = journal.parsed(line, draft.n_lines)
        if isinstance(item, Entry):
            draft.rows.setdefault(item.table, []).append(item.row)
        else:
            draft.n_bad += 1
        if draft.end - draft.start >= STRETCH_BYTES if bound is None else draft.end >= bound:
            yield draft
            draft = _Draft(start=draft.end, end=draft.end)
            bound = next(bounds, None)
    if draft.n_lines:
        yield draft


def _store(
    results: Path, found: PartList, draft: _Draft, growing: Stretch | None
) -> tuple[PartList, int]:
    """Writes the parts of a stretch and the list with them."""
    old = {part.table: part for part in found.parts() if part.start == draft.start}
    is_growing = growing is not None and growing.start == draft.start
    parts = dict(old) if is_growing else {}
    first: list[tuple[Path, bytes]] = []
    later: list[tuple[Path, bytes]] = []
    for table, rows in draft.rows.items():
        frame = to_frame(rows, table)
        part = Part(
            table=table, start=draft.start, n_rows=frame.height, sha256="", before_sha256=None
        )
        path = part_path(results, found.sweep_id, part)
        if is_growing and table in old:
            frame = pl.concat([read_part(path, SCHEMAS[table]), frame])
        content = to_parquet(frame)
        # A reader with the list of a moment ago must find what that list states.
        before = digest_of(path) if table in old else None
        (first if before is None else later).append((path, content))
        parts[table] = replace(
            part,
            n_rows=frame.height,
            sha256=hashlib.sha256(content).hexdigest(),
            before_sha256=before,
        )
    if first and not list_path(results, found.sweep_id).exists():
        # Parts without a list are a damage: a kill in between shows readers no rows yet.
        write_list(results, found)
    for path, content in first:
        replace_file(path, content)
    others = [one for one in found.stretches if one.start != draft.start]
    stretches = sorted([*others, draft.stretch(parts.values())], key=lambda one: one.start)
    found = replace(found, stretches=tuple(stretches))
    write_list(results, found)
    for path, content in later:
        replace_file(path, content)
    return found, len(first) + len(later)


def write_list(results: Path, found: PartList) -> None:
    """Replaces the list of a sweep's parts.

    Raises:
        StoreError: it cannot be written; nothing changed.
    """
    content = cast("dict[str, object]", to_plain(found))
    write_checked_object(list_path(results, found.sweep_id), content)


def _remove_unlisted(results: Path, found: PartList) -> None:
    """Removes parts that a killed process left; no reader uses them."""
    listed = {part_path(results, found.sweep_id, part) for part in found.parts()}
    for table in SCHEMAS:
        for path in parts_folder(results, found.sweep_id, table).glob(PARTS):
            if path not in listed:
                path.unlink(missing_ok=True)


def frames_of(results: Path, sweep_id: str, table: str = MEASUREMENTS) -> Iterator[pl.DataFrame]:
    """Yields the published rows of one table of a sweep, part by part.

    Raises:
        StoreError: a part is damaged.
    """
    with reworded(StoreError, DamagedPartError):
        for path in part_files(results, sweep_id, table):
            yield read_part(path, SCHEMAS[table])


def read_sweeps(results: Path, sweep_ids: Sequence[str]) -> pl.DataFrame:
    """Returns the published measurements of several sweeps; can be empty.

    Raises:
        StoreError: a part is damaged.
    """
    empty = empty_table(tuple(SCHEMAS[MEASUREMENTS].items()))
    return pl.concat([empty, *(f for one in sweep_ids for f in frames_of(results, one))])


def repeat_seconds(results: Path, sweep_ids: Sequence[str]) -> dict[str, float]:
    """Returns by cell key the mean duration of a valid repeat; in rounds its share of the round.

    Raises:
        StoreError: a part is damaged.
    """
    began, ended, round_id = map(pl.col, ("started_utc", "finished_utc", "round_id"))
    share = (ended.max() - began.min()).over(round_id) / pl.len().over(round_id)
    took = pl.when(round_id.is_null()).then(ended - began).otherwise(share)
    took_s = (took.dt.total_microseconds() / 1e6).alias("took_s")
    columns = ("cell_key", "status", "started_utc", "finished_utc", "round_id")
    schema = {name: SCHEMAS[MEASUREMENTS][name] for name in columns}
    with reworded(StoreError, DamagedPartError):
        paths = [path for one in sweep_ids for path in part_files(results, one)]
        stored = pl.concat(
            [pl.DataFrame(schema=schema), *(read_part(one, schema) for one in paths)]
        )
    # A clock that was set back or on during a repeat makes times that cannot be.
    is_good = (pl.col("status") == "ok") & pl.col("took_s").is_between(0, _LONGEST_REPEAT_S)
    good = stored.with_columns(took_s).filter(is_good)
    return dict(good.group_by("cell_key").agg(pl.col("took_s").mean()).iter_rows())

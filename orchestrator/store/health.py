"""Verifies a sweep's journal against its parts, and makes either again from the other.

A stretch of the journal and its parts have checksums in the list of the parts. So a stretch is
compared without its rows; rows are only read where something is wrong, or is not published yet.
"""

import contextlib
import itertools
import math
import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
from pydantic import ValidationError

from fleetrank.analysis.errors import DamagedPartError
from fleetrank.analysis.stored.columns import ROW_KEY
from fleetrank.analysis.stored.part_list import (
    ASIDE,
    MEASUREMENTS,
    NO_SWEEP,
    PARTS,
    REPAIR,
    PartList,
    Stretch,
    damage_error,
    digest_of,
    list_path,
    part_path,
    parts_folder,
    read_list,
    read_part,
    stray_files,
    sweeps_here,
)
from fleetrank.analysis.stored.sweep_record import record_problems
from fleetrank.foundation.lease import seems_locked
from fleetrank.foundation.wording import count_of
from fleetrank.orchestrator.durable import replace_file_with, storing, sync_folder
from fleetrank.orchestrator.errors import NewerSchemaError, StoreError, UsageError
from fleetrank.orchestrator.keys import RowKey
from fleetrank.orchestrator.rows import summarise
from fleetrank.orchestrator.store.journal import (
    BadLineError,
    Entry,
    Journal,
    JournalProblem,
    make_line,
    parse_line,
)
from fleetrank.orchestrator.store.parts import (
    frames_of,
    journal_rows,
    stretch_digests,
    to_frame,
    write_list,
)
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.small_files import RESTORE_RECORD
from fleetrank.orchestrator.table_fit import SCHEMAS
from fleetrank.orchestrator.workspace.sweep_spec import SweepSpec

KEEP = (
    "the journal is damaged, the Parquet parts are not: keep them, delete nothing; "
    f"{REPAIR} writes the rows of the parts into the journal again"
)
KEEP_BOTH = (
    "the journal lacks rows too: delete nothing, keep a copy of journal and parts, and use the "
    "parts that can be read"
)
_READ_PAST = (
    "leave the line in the journal: readers skip it, and `fleetrank sweep resume` measures a "
    f"repeat again that was lost with it; or {REPAIR} removes it, and moves a whole row of another "
    "sweep there, unless a process holds that sweep or its journal is damaged"
)
_PUBLISH = f"{REPAIR} publishes what is in the journal only"
_WRITTEN_SO = (
    "a row that was written wrong cannot be repaired: `fleetrank results exclude` leaves it out "
    "of every figure, and a new sweep measures its cell again"
)
_RESTORE_ROWS = (
    "restore journal, list and parts together from a copy; or `fleetrank sweep resume` measures "
    "what is missing, and an import is deleted and made again"
)
_LISTED = 20
"""Maximum number of rows of one kind that are listed; the rest are counted."""
_ROWS_AT_ONCE = 2000
_STEPS = 5
_KEY = list(ROW_KEY)
_TOLERANCE = 1e-9
"""Sums in another order differ by about 1e-16; an edited figure differs much more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFault:
    """A fault in one sweep's stored rows; the remedy says which side to keep."""

    text: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalBesideParts:
    """The journal of a sweep beside its parts.

    Attributes:
        found: the list of the parts; empty if it is damaged.
        list_error: why the list cannot be read.
        lost: stretches that the journal does not have as they were published.
        problems: lines that are not rows of this sweep.
        broken: parts that are missing or damaged, with their stretch.
        n_unpublished: rows after the last stretch.
        packed_error: why the journal cannot be read to its end.
        n_only_parts: rows of parts without a valid checksum that no journal has.
    """

    found: PartList
    list_error: DamagedPartError | None = None
    lost: tuple[Stretch, ...]
    problems: tuple[JournalProblem, ...]
    broken: tuple[tuple[Stretch, Path], ...] = ()
    n_unpublished: int
    packed_error: StoreError | None
    n_only_parts: int = 0

    @property
    def is_journal_damaged(self) -> bool:
        """Whether the journal has a line without a row, or lacks published bytes."""
        return bool(self.lost or self.problems or self.packed_error)

    @property
    def has_lost_both(self) -> bool:
        """Whether a stretch is damaged on both sides, and its rows are in no other journal."""
        is_exchanged = bool(self.problems) and all(one.home for one in self.problems)
        is_both = any(one in self.lost for one, _ in self.broken)
        return bool(self.n_only_parts) or (is_both and not is_exchanged)

    @property
    def faults(self) -> Iterator[StoredFault]:
        """What is wrong, with the side to keep."""
        keep = KEEP_BOTH if self.has_lost_both else KEEP
        if self.list_error is not None:
            yield StoredFault(text=self.list_error.message, remedy=self.list_error.remedy)
        if self.n_only_parts:
            text = f"{count_of(self.n_only_parts, 'row')} of damaged or unlisted parts"
            yield StoredFault(text=f"{text}: no journal has as many", remedy=keep)
        if self.packed_error is not None:
            yield StoredFault(text=self.packed_error.message, remedy=keep)
        texts = [f"journal, line {one.line}: {one.reason}" for one in self.problems]
        yield from _listed(texts, "lines of the journal that are not rows",
                           keep if self.lost else _READ_PAST)  # fmt: skip
        if self.lost:
            n_rows = sum(part.n_rows for stretch in self.lost for part in stretch.parts)
            text = f"journal: {count_of(n_rows, 'row')} of the Parquet parts may not be in it"
            yield StoredFault(text=text, remedy=keep)
        for stretch, path in self.broken:
            error = damage_error(path)
            yield StoredFault(
                text=error.message, remedy=KEEP_BOTH if stretch in self.lost else error.remedy
            )
        if self.n_unpublished:
            rows = count_of(self.n_unpublished, "row")
            yield StoredFault(text=f"journal: {rows} in the journal only", remedy=_PUBLISH)


def compare(store: ResultStore, sweep_id: str) -> JournalBesideParts:
    """Compares journal and parts by their checksums; writes nothing."""
    journal, results = store.open_journal(sweep_id), store.root
    list_error = None
    try:
        found = read_list(results, sweep_id)
    except DamagedPartError as error:
        found, list_error = PartList(sweep_id=sweep_id), error
    broken, n_unpublished = list[tuple[Stretch, Path]](), 0
    for stretch in found.stretches:
        for part in stretch.parts:
            digest = digest_of(path := part_path(results, sweep_id, part))
            if digest is None or digest not in {part.sha256, part.before_sha256}:
                broken.append((stretch, path))
            elif digest != part.sha256:
                n_unpublished += part.n_rows
    read = _read_journal(journal, found)
    compared = replace(
        read,
        list_error=list_error,
        broken=tuple(broken),
        n_unpublished=n_unpublished + read.n_unpublished,
    )
    if not (broken or list_error) or compared.has_lost_both:
        return compared
    return replace(compared, n_only_parts=_n_only_parts(store, journal, compared))


def _n_only_parts(store: ResultStore, journal: Journal, compared: JournalBesideParts) -> int:
    """By how many rows the list and the parts of a sweep exceed what can be written again."""
    schema = {name: SCHEMAS[MEASUREMENTS][name] for name in _KEY}
    keys = [pl.DataFrame(schema=schema)]
    for path in store.parts_folder(journal.sweep_id).glob(PARTS):
        with contextlib.suppress(DamagedPartError):
            keys.append(read_part(path, schema))
    own = pl.concat(keys).unique().filter(pl.col("sweep_id") == journal.sweep_id).height
    counts = Counter({MEASUREMENTS: own})
    for table in SCHEMAS:
        listed = sum(part.n_rows for part in compared.found.parts(table))
        counts[table] = max(counts[table], listed)
    counts.subtract(entry.table for entry in _entries_again(store, journal, compared))
    return sum((+counts).values())


def _read_journal(journal: Journal, found: PartList) -> JournalBesideParts:
    """The journal's side of the comparison; rows are parsed only where it is needed."""
    lost, problems, n_unpublished = list[Stretch](), list[JournalProblem](), 0
    packed_error = None
    try:
        pairs = list(zip(found.stretches, stretch_digests(journal, found.stretches), strict=True))
        lost = [stretch for stretch, (digest, _) in pairs if digest != stretch.sha256]
        is_read = bool(lost) or any(stretch.n_bad for stretch in found.stretches)
        at, n_before = (0, 0) if is_read else (found.end, sum(n for _, (_, n) in pairs))
        for number, line in enumerate(journal.lines(at), start=n_before + 1):
            item = journal.parsed(line, number)
            if isinstance(item, JournalProblem):
                problems.append(item)
            elif at >= found.end:
                n_unpublished += 1
            at += len(line)
    except NewerSchemaError:
        raise
    except StoreError as error:
        lost, packed_error = list(found.stretches), error
    return JournalBesideParts(
        found=found,
        lost=tuple(lost),
        problems=tuple(problems),
        n_unpublished=n_unpublished,
        packed_error=packed_error,
    )


def examine(store: ResultStore, sweep_id: str) -> list[StoredFault]:
    """Every fault of the record, the journal and the parts of one sweep; writes nothing."""
    compared = compare(store, sweep_id)
    broken = {path for _, path in compared.broken}
    paths = [part_path(store.root, sweep_id, one) for one in compared.found.parts(MEASUREMENTS)]
    faults = list(compared.faults)
    if not faults and sweep_id != NO_SWEEP:
        faults += _fewer_than_recorded(store, sweep_id, paths)
    return [
        *(_faults_of_record(store, sweep_id) if sweep_id != NO_SWEEP else ()),
        *faults,
        *_faults_of_rows([path for path in paths if path not in broken]),
    ]


def hidden_sweeps(store: ResultStore) -> Iterator[StoredFault]:
    """Sweeps that no reader sees, though no process removes or copies them now."""
    for path in sorted((store.root / "sweeps").glob("*.pending")):
        if not seems_locked(path.with_suffix(".lease")):
            remedy = "delete or import it again to finish; or delete the marker, and it is visible"
            yield StoredFault(text=f"{path.stem} is hidden by the marker {path}", remedy=remedy)


def stray_faults(store: ResultStore) -> Iterator[StoredFault]:
    """Files and folders of no sweep, which every reader skips."""
    for path in stray_files(store.root):
        remedy = "move it out of the results; if it is a copy, its sweep has the same rows"
        yield StoredFault(text=f"{path} is the file of no sweep, and is not read", remedy=remedy)


def put_strays_aside(store: ResultStore) -> list[str]:
    """Renames what should be a file and is none, such as a folder; one sentence each."""
    strays = _put_aside(path for path in stray_files(store.root) if not path.is_file())
    return [f"{path.name} is not a file: it is put aside as {aside}" for path, aside in strays]


def _fewer_than_recorded(
    store: ResultStore, sweep_id: str, paths: Sequence[Path]
) -> Iterator[StoredFault]:
    """Fewer rows than the record of an ended sweep states, though journal and parts agree.

    So it is if all of them were removed, or come from an older copy.
    """
    try:
        record = store.sweep_record(sweep_id)
    except (StoreError, UsageError):
        return  # a separate fault
    schema = {name: SCHEMAS[MEASUREMENTS][name] for name in (*_KEY, "status")}
    rows = pl.concat([pl.DataFrame(schema=schema), *(read_part(path, schema) for path in paths)])
    measured = rows.filter(pl.col("status") == "ok").select("cell_key", "repeat").unique().height
    for found, stated, what in (
        (measured, record.n_ok, "measured repeat"),
        (rows.height, record.n_rows if record.is_imported else None, "row"),
    ):
        if stated is not None and found < stated:
            counts = f"{count_of(found, what)} of the {stated:,} that its record states"
            yield StoredFault(text=f"{counts} are stored", remedy=_RESTORE_ROWS)


def _faults_of_record(store: ResultStore, sweep_id: str) -> Iterator[StoredFault]:
    try:
        record = store.sweep_record(sweep_id)
    except StoreError as error:
        yield StoredFault(text=error.message, remedy=error.remedy)
        return
    except UsageError:
        path = store.record_path(sweep_id)
        yield StoredFault(text=f"{path} is missing", remedy=RESTORE_RECORD)
        return
    if record.spec is None:
        return
    try:
        SweepSpec.model_validate(record.spec)
    except ValidationError as error:
        for problem in record_problems(error, "spec"):
            yield StoredFault(
                text=f"{store.record_path(sweep_id)}: {problem}", remedy=RESTORE_RECORD
            )


def _faults_of_rows(paths: Sequence[Path]) -> Iterator[StoredFault]:
    """Rows that are stored twice, and rows whose samples contradict their summaries."""
    columns = [*_KEY, "samples_ns", *summarise([1])]
    schema = {name: SCHEMAS[MEASUREMENTS][name] for name in columns}
    keys, wrong = [pl.DataFrame(schema={n: schema[n] for n in _KEY})], list[str]()
    for path in paths:
        rows = read_part(path, schema)
        keys.append(rows.select(_KEY))
        for row in rows.filter(pl.col("samples_ns").is_not_null()).iter_rows(named=True):
            wrong += wrong_summaries(row)
    yield from _listed(_twice(keys), "rows stored twice", f"{REPAIR} keeps the first of equal keys")
    yield from _listed(wrong, "wrong summaries", _WRITTEN_SO)


def _twice(keys: Sequence[pl.DataFrame]) -> list[str]:
    every = pl.concat(keys)
    again = every.filter(~every.select(pl.struct(_KEY).is_first_distinct()).to_series())
    return [f"{RowKey.of(row).label}: stored twice" for row in again.iter_rows(named=True)]


def _stored_twice(results: Path, found: PartList) -> bool:
    schema = {name: SCHEMAS[MEASUREMENTS][name] for name in _KEY}
    paths = (part_path(results, found.sweep_id, part) for part in found.parts(MEASUREMENTS))
    keys = [read_part(path, schema) for path in paths if path.exists()]
    return bool(keys) and bool(_twice(keys))


def wrong_summaries(row: Mapping[str, object]) -> Iterator[str]:
    """Yields the summaries of a row that its samples contradict."""
    samples = row["samples_ns"]
    if not isinstance(samples, list):
        return
    for name, expected in summarise(samples).items():
        stored = row[name]
        if not _is_equal(stored, expected):
            yield f"{RowKey.of(row).label}: {name} is {stored}, its samples give {expected}"


def _is_equal(stored: object, expected: float | None) -> bool:
    if expected is None or not isinstance(stored, int | float):
        return stored is expected
    return math.isclose(stored, expected, rel_tol=_TOLERANCE)


def _listed(texts: Sequence[str], what: str, remedy: str) -> Iterator[StoredFault]:
    yield from (StoredFault(text=text, remedy=remedy) for text in texts[:_LISTED])
    if len(texts) > _LISTED:
        yield StoredFault(text=f"and {len(texts) - _LISTED:,} more {what}", remedy=remedy)


def repair_sweep(store: ResultStore, sweep_id: str) -> list[str]:
    """Repairs each damaged file that has an undamaged copy; the caller holds the sweep's lease.

    A damaged file is not deleted: it is renamed, so that readers skip it and a person can examine
    it. If both sides of a stretch are damaged, both stay unchanged.

    Returns:
        What was done, one sentence per file; empty if nothing could or had to be repaired.

    Raises:
        StoreError: the disk is full, or a file cannot be renamed; no row is lost.
    """
    done: list[str] = []
    # One step can show the next damage, such as rows that are stored twice.
    for _ in range(_STEPS):
        if not (step := _repaired(store, sweep_id)):
            break
        done += step
    return done


def _repaired(store: ResultStore, sweep_id: str) -> list[str]:
    """One step of a repair; empty if nothing is left to do."""
    compared = compare(store, sweep_id)
    if compared.has_lost_both:
        return []
    done = list[str]()
    try:
        for home in sorted({one.home for one in compared.problems if one.home is not None}):
            done += _sent_home(store, store.open_journal(sweep_id), home)
    except (StoreError, UsageError):
        return done  # the rows stay here, and are a fault
    broken = [path for _, path in compared.broken]
    if compared.list_error is not None:
        return done + _list_again(store, compared)
    if not compared.is_journal_damaged and (broken or compared.n_unpublished):
        kept = _put_aside(broken)
        n_parts = store.publish(sweep_id)
        return [
            f"{path.name} is made again from the journal; the damaged one is {aside}"
            for path, aside in kept
        ] or [f"{count_of(n_parts, 'part')} written"]
    if compared.is_journal_damaged or _stored_twice(store.root, compared.found):
        done.append(_write_journal_again(store, compared))
        _publish_again(store, sweep_id, broken)
    return done


def _list_again(store: ResultStore, compared: JournalBesideParts) -> list[str]:
    sweep_id = compared.found.sweep_id
    path = list_path(store.root, sweep_id)
    parts = [
        one for table in SCHEMAS for one in parts_folder(store.root, sweep_id, table).glob(PARTS)
    ]
    has_journal = store.open_journal(sweep_id).state is not None
    if parts and not has_journal and _are_copies(store, sweep_id):
        _put_aside(parts)
        return [f"{count_of(len(parts), 'part')} with rows of other sweeps only, put aside"]
    if compared.packed_error is not None or (parts and not has_journal):
        return []
    _put_aside([path, *parts])
    if has_journal:
        _publish_again(store, sweep_id)
    return [f"{path.name} is {'made again' if has_journal else 'of no rows: it is put aside'}"]


def _are_copies(store: ResultStore, sweep_id: str) -> bool:
    """Whether the sweeps that the rows of these unlisted parts name have all of them."""
    of_home: dict[str, list[Entry]] = {}
    folders = ((parts_folder(store.root, sweep_id, table), table) for table in SCHEMAS)
    parts = ((path, table) for folder, table in folders for path in folder.glob(PARTS))
    for entry in _rows_of_parts(parts):
        of_home.setdefault(str(entry.row["sweep_id"]), []).append(entry)
    if not of_home or not of_home.keys() <= {*store.sweep_ids()} - {sweep_id}:
        return False
    return not any(
        next(_known_of(store, store.open_journal(home)).missing(copies), None)
        for home, copies in of_home.items()
    )


def _publish_again(store: ResultStore, sweep_id: str, broken: Iterable[Path] = ()) -> None:
    """From here on the journal alone is the truth, also after a kill."""
    write_list(store.root, PartList(sweep_id=sweep_id))
    _put_aside(broken)
    store.publish(sweep_id)


def _known_of(store: ResultStore, journal: Journal) -> "_Known":
    """Every row that a sweep has itself."""
    known, compared = _Known(), compare(store, journal.sweep_id)
    deque(known.added(_entries_again(store, journal, compared, is_alone=True)), maxlen=0)
    return known


def _sent_home(store: ResultStore, journal: Journal, home: str) -> list[str]:
    """Appends whole rows of another sweep to its journal, unless it has them; publishes them."""
    theirs = store.open_journal(home)
    with store.lease(home), theirs:
        known = _known_of(store, theirs)
        new = list(known.missing(_good_entries(journal, 0, None, home)))
        theirs.append_lines(make_line(entry.row, entry.table) for entry in new)
        theirs.flush()
        with contextlib.suppress(StoreError):  # the repair of that sweep publishes them
            store.publish(home)
    return [f"{count_of(len(new), 'row')} moved to {theirs.path.name}"] if new else []


def _write_journal_again(store: ResultStore, compared: JournalBesideParts) -> str:
    """Damaged lines that were not published are lost; their file is kept."""
    journal = store.open_journal(compared.found.sweep_id)
    n_rows = 0

    def lines() -> Iterator[bytes]:
        nonlocal n_rows
        for entry in _entries_again(store, journal, compared):
            n_rows += 1
            yield make_line(entry.row, entry.table)

    kept = _name_aside(journal.path if journal.path.exists() else journal.packed_path)
    with storing(kept):
        if journal.path.is_file():
            os.link(journal.path, kept)
        elif journal.path.exists():
            journal.path.rename(kept)
        sync_folder(kept.parent)
        replace_file_with(journal.path, lambda file: file.writelines(lines()))
        if journal.packed_path.exists():
            journal.packed_path.rename(kept)
            sync_folder(kept.parent)
    before = f"the damaged is {kept}" if kept.exists() else "it was missing"
    return f"{journal.path.name} is written again with {n_rows:,} rows; {before}"


def _entries_again(
    store: ResultStore, journal: Journal, compared: JournalBesideParts, *, is_alone: bool = False
) -> Iterator[Entry]:
    """Every row that a sweep's journal and parts have, and other journals of it, once."""
    found, known = compared.found, _Known()
    broken = [stretch for stretch, _ in compared.broken]
    for stretch in found.stretches:
        if stretch in compared.lost and stretch in broken:
            continue
        if stretch in compared.lost:
            paths = ((part_path(store.root, found.sweep_id, p), p.table) for p in stretch.parts)
            rows = _rows_of_parts(paths)
        else:
            rows = _good_entries(journal, stretch.start, stretch.end)
        yield from known.added(rows)
    if compared.lost:
        # The bytes after the damage may have moved, so every line is looked at.
        yield from known.missing(_good_entries(journal, 0, None))
    else:
        yield from known.added(_good_entries(journal, found.end, None))
    for other in sweeps_here(store.root):
        if other != found.sweep_id and not is_alone:
            lines = _good_entries(store.open_journal(other), 0, None, found.sweep_id)
            yield from known.missing(lines)


def _rows_of_parts(parts: Iterable[tuple[Path, str]]) -> Iterator[Entry]:
    for path, table in parts:
        for row in journal_rows(read_part(path, SCHEMAS[table]), table):
            yield Entry(table=table, row=row)


def _good_entries(
    journal: Journal, start: int, end: int | None, home: str | None = None
) -> Iterator[Entry]:
    """The rows of these bytes of a journal, or those of the sweep `home`; up to its damage."""
    with contextlib.suppress(StoreError):
        for line in journal.lines(start):
            if end is not None and start >= end:
                return
            start += len(line)
            with contextlib.suppress(BadLineError):
                yield parse_line(line, home or journal.sweep_id)


class _Known:
    """Which rows were seen: measurements by key, rows of side tables by their values."""

    def __init__(self) -> None:
        self._keys: set[RowKey] = set()
        self._values: Counter[tuple[str, int]] = Counter()

    def added(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yields the entries that are new, and remembers them; rows of side tables are all new."""
        for batch in _batches(entries):
            self._values.update(filter(None, _values(batch)))
            yield from self._new_keys(batch)

    def missing(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yields the entries that were not added before."""
        seen: Counter[tuple[str, int]] = Counter()
        for batch in _batches(entries):
            left = []
            for entry, value in zip(batch, _values(batch), strict=True):
                if value is not None:
                    seen[value] += 1
                if value is None or seen[value] > self._values[value]:
                    left.append(entry)
            yield from self._new_keys(left)
        self._values |= seen

    def _new_keys(self, batch: Sequence[Entry]) -> Iterator[Entry]:
        for entry in batch:
            if entry.table != MEASUREMENTS:
                yield entry
            elif (key := RowKey.of(entry.row)) not in self._keys:
                self._keys.add(key)
                yield entry


def _values(batch: Sequence[Entry]) -> list[tuple[str, int] | None]:
    """A hash of each row of a side table; `None` for measurements, which have keys."""
    hashes = {
        table: iter(to_frame((one.row for one in batch if one.table == table), table).hash_rows())
        for table in {one.table for one in batch} - {MEASUREMENTS}
    }
    return [
        None if one.table == MEASUREMENTS else (one.table, next(hashes[one.table])) for one in batch
    ]


def _batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    iterator = iter(entries)
    while batch := list(itertools.islice(iterator, _ROWS_AT_ONCE)):
        yield batch


def _put_aside(paths: Iterable[Path]) -> list[tuple[Path, Path]]:
    """Renames files, so that readers skip them; returns old and new names of those that existed."""
    kept = []
    for path in paths:
        if not path.exists():
            continue
        aside = _name_aside(path)
        with storing(path):
            path.rename(aside)
            sync_folder(path.parent)
        kept.append((path, aside))
    return kept


def _name_aside(path: Path) -> Path:
    """Returns a free name that readers ignore."""
    numbers = ("", *(f"-{number}" for number in range(2, 1000)))
    names = (path.with_name(f"{path.name}{ASIDE}{number}") for number in numbers)
    return next(name for name in names if not name.exists())


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The rows of a sweep in all tables.

    Attributes:
        n_rows: of measurements.
        digest: equal for equal rows, in any order and in any files.
    """

    n_rows: int
    digest: int


def content_of(store: ResultStore, sweep_id: str) -> Content:
    """Reads every row of a sweep, including rows that only its journal has.

    Raises:
        StoreError: journal or parts are damaged, or have rows of another sweep.
    """
    compared = compare(store, sweep_id)
    is_foreign = any(problem.is_whole for problem in compared.problems)
    if compared.lost or compared.broken or compared.list_error or is_foreign:
        raise StoreError(
            next(compared.faults).text, f"{REPAIR} restores what has an undamaged copy"
        )
    n_rows = digest = 0
    new = _good_entries(store.open_journal(sweep_id), compared.found.end, None)
    frames = (
        (table, frame) for table in SCHEMAS for frame in frames_of(store.root, sweep_id, table)
    )
    unpublished = (
        (table, to_frame((one.row for one in batch if one.table == table), table))
        for batch in _batches(new)
        for table in SCHEMAS
    )
    for table, frame in itertools.chain(frames, unpublished):
        n_rows += frame.height if table == MEASUREMENTS else 0
        # A sum does not depend on the order, and equal rows do not cancel each other.
        digest += int(frame.hash_rows(seed=0).cast(pl.Decimal(38, 0)).sum() or 0)
    return Content(n_rows=n_rows, digest=digest)

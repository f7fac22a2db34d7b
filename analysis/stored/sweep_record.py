"""The record of a sweep: `results/sweeps/SWEEP.json`, one file per sweep, written by its driver.

Beside it lie the tags that a person gave the sweep, in `SWEEP.tags`: they can change while the
driver rewrites the record.

This is the only definition of its entries. Entries that this version does not know are kept. Every
entry except the id may be missing, as in the record of an import.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, cast

import polars as pl
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
)

from fleetrank.analysis.errors import DamagedPartError, NoDataError
from fleetrank.foundation.codec import CodecError, Json, from_plain
from fleetrank.foundation.errors import BadFileError, MissingFileError, warn_once, with_flags
from fleetrank.foundation.files import check_regular, file_sha256
from fleetrank.foundation.plain_data import read_checked_object, read_json_object

# The Parquet parts of a sweep, and the list that names each of them with its checksum.
#
# The journal of a sweep holds its rows. `sweeps/SWEEP.parts` says which parts were made from
# which bytes of the journal. It is replaced as a whole, so readers see all rows of one moment.
# Rows without a sweep, such as evaluations, are stored like those of a sweep `NO_SWEEP`.

MEASUREMENTS = "measurements"
"""The table of measurements; every other one is a side table."""
ASIDE = ".damaged"
"""In the names of what a repair put aside."""
PARTS = f"part-{'[0-9]' * 12}.parquet"
NO_SWEEP = "_no-sweep"
"""In place of a sweep's id; the id of a sweep starts with a letter or a digit."""
UNREADABLE = (
    pl.exceptions.PolarsError,
    # Not a subclass of `Exception`; raised for some files that are no Parquet.
    pl.exceptions.PanicException,
    OSError,
    UnicodeDecodeError,
)
"""Errors that Polars raises for a damaged file."""
_SWEEP_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)
REPAIR = "`fleetrank results verify` with `repair=true`"
_REMEDY = (
    f"run {REPAIR}: it keeps a damaged file under another name and makes it again from the journal"
)
_KNOWN_FILES = 100_000
_TRIES = 5
"""A driver publishes rarely; a reader that meets several replacements in a row is not expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One Parquet file.

    Attributes:
        start: the first byte of the journal that it was made from.
        before_sha256: of the shorter file that this one replaces; `None` if it replaces none. For a
            moment, or after a crash, the shorter one can still be there.
    """

    table: str
    start: int
    n_rows: int
    sha256: str
    before_sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The bytes `start` to `end` (not included) of a journal, and the parts made of them.

    Attributes:
        sha256: of these bytes.
        n_bad: lines among them that are no rows; no part has them.
    """

    start: int
    end: int
    sha256: str
    n_lines: int
    n_bad: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartList:
    """What is published of one sweep."""

    sweep_id: str
    stretches: tuple[Stretch, ...] = ()

    @property
    def end(self) -> int:
        """The first byte of the journal that is not published."""
        return self.stretches[-1].end if self.stretches else 0

    def parts(self, table: str | None = None) -> list[Part]:
        """The parts of one table, or of all, in the order of the journal."""
        every = (part for stretch in self.stretches for part in stretch.parts)
        return [part for part in every if table is None or part.table == table]


def list_path(results: Path, sweep_id: str) -> Path:
    """The list of a sweep's parts."""
    return results / "sweeps" / f"{sweep_id}.parts"


def parts_folder(results: Path, sweep_id: str, table: str = MEASUREMENTS) -> Path:
    """The folder with the parts of one table of a sweep."""
    folder = results / table if table == MEASUREMENTS else results / "side" / table
    return folder / f"sweep_id={sweep_id}"


def part_path(results: Path, sweep_id: str, part: Part) -> Path:
    """The file of a part."""
    return parts_folder(results, sweep_id, part.table) / f"part-{part.start:012d}.parquet"


def pending_path(results: Path, sweep_id: str) -> Path:
    """The marker that hides a sweep from every reader while its files are removed or copied."""
    return results / "sweeps" / f"{sweep_id}.pending"


def is_pending(results: Path, sweep_id: str) -> bool:
    """Whether a sweep is hidden."""
    return pending_path(results, sweep_id).exists()


def sweeps_here(results: Path) -> list[str]:
    """The visible sweeps of which any file is here: a record, a journal, a list or parts; sorted.

    Readers and those who look after the files both ask this, so a sweep that lost one of its files
    stays known. With `NO_SWEEP` if it has a journal or a list.
    """
    records = (path.stem for path in _files(results / "sweeps", "*.json"))
    files = _files(results / "journal", "*.jsonl*")
    found = {*records, *(one.name.partition(".jsonl")[0] for one in files), *_with_parts(results)}
    # What begins with a dot was left by a killed process.
    return [one for one in sorted(found) if is_sweep_id(one) and not is_pending(results, one)]


def _files(folder: Path, pattern: str) -> Iterator[Path]:
    """Regular files only; anything else of these names, such as a folder, is logged."""
    for path in folder.glob(pattern):
        if path.is_file():
            yield path
        elif _is_stray(path):
            fix = f"{with_flags(REPAIR)} puts it aside"
            warn_once(f"{path} is not a file, and is not read; {fix}")


def _is_stray(path: Path) -> bool:
    """Whether it is not a regular file, left by a killed process or put aside."""
    return path.name[0] != "." and ASIDE not in path.name and not path.is_file()


def stray_files(results: Path) -> list[Path]:
    """What is beside the files of sweeps and of none, such as copies; readers skip it.

    With folders and other things that are no files, under any name.
    """
    files = [*(results / "sweeps").iterdir()] if (results / "sweeps").is_dir() else []
    # What begins with a dot was left by a killed process.
    named = [one for one in files if one.name[:1] != "."]
    unlike = [one for one in named if not (is_sweep_id(one.name) or one.stem == NO_SWEEP)]
    inside = [*(results / "journal").glob("*"), *results.glob(f"{MEASUREMENTS}/*/{PARTS}")]
    return sorted({*unlike, *filter(_is_stray, [*files, *inside])})


def published_sweeps(results: Path) -> list[str]:
    """Those of `sweeps_here` that have a list of parts, or parts."""
    published = _with_parts(results)
    return [one for one in sweeps_here(results) if one in published]


def _with_parts(results: Path) -> set[str]:
    lists = (path.stem for path in _files(results / "sweeps", "*.parts"))
    folders = results.glob(f"{MEASUREMENTS}/sweep_id=*")
    filled = (path.name.partition("=")[2] for path in folders if any(_files(path, PARTS)))
    return {*lists, *filled}


def is_sweep_id(text: str) -> bool:
    """Whether a file of this name is one of a sweep, or of rows without one."""
    return text == NO_SWEEP or _SWEEP_ID.fullmatch(text) is not None


def read_list(results: Path, sweep_id: str) -> PartList:
    """What is published of a sweep; nothing if it has neither a list nor parts.

    Raises:
        DamagedPartError: the list is missing beside parts, or damaged, or of another sweep.
    """
    path = list_path(results, sweep_id)
    try:
        found = from_plain(PartList, cast("Json", read_checked_object(path)))
    except MissingFileError as error:
        if any(_files(parts_folder(results, sweep_id), PARTS)):
            raise DamagedPartError(f"{path} is missing", _REMEDY) from error
        return PartList(sweep_id=sweep_id)
    except (BadFileError, CodecError) as error:
        raise DamagedPartError(f"{path} is damaged: {error.message}", _REMEDY) from error
    if found.sweep_id != sweep_id or not _is_possible(found):
        raise DamagedPartError(f"{path} is not the list of sweep {sweep_id}", _REMEDY)
    return found


def _is_possible(found: PartList) -> bool:
    """Whether stretches follow one another from the first byte, and no number is negative."""
    at = 0
    for stretch in found.stretches:
        if stretch.start != at or stretch.end < at or not 0 <= stretch.n_bad <= stretch.n_lines:
            return False
        at = stretch.end
        for part in stretch.parts:
            if part.start < 0 or part.n_rows < 0 or not part.table.isidentifier():
                return False
    return True


def part_files(results: Path, sweep_id: str, table: str = MEASUREMENTS) -> list[Path]:
    """The parts of one table of a sweep in order, each checked once per state of its file.

    Raises:
        DamagedPartError: a part is missing or does not match its checksum, or the list is damaged.
    """
    found, broken = read_list(results, sweep_id), None
    for _ in range(_TRIES):
        paths = [(one, part_path(results, sweep_id, one)) for one in found.parts(table)]
        broken = next((path for part, path in paths if not is_whole(path, part)), None)
        if broken is None:
            return [path for _, path in paths]
        # A driver may have replaced part and list meanwhile.
        known, found = found, read_list(results, sweep_id)
        if found == known:
            break
    raise damage_error(broken or list_path(results, sweep_id))


def is_whole(path: Path, part: Part) -> bool:
    """Whether a part is there and has the content that its list states."""
    digest = digest_of(path)
    return digest is not None and digest in {part.sha256, part.before_sha256}


def digest_of(path: Path) -> str | None:
    """SHA-256 of a file, computed once per process and state of the file; `None` if unreadable."""
    try:
        found = path.stat()
        return _digest(path, found.st_size, found.st_mtime_ns, found.st_ino)
    except OSError:
        return None


@lru_cache(maxsize=_KNOWN_FILES)
def _digest(path: Path, _size: int, _mtime_ns: int, _inode: int) -> str:
    return file_sha256(path)


def damage_error(path: Path) -> DamagedPartError:
    """The error about a part, with the command that makes it again."""
    return DamagedPartError(f"{path} is {'damaged' if path.exists() else 'missing'}", _REMEDY)


def damage_in(results: Path) -> DamagedPartError | None:
    """The first damage in the parts of all visible sweeps; reads all, so call it after an error."""
    _digest.cache_clear()
    for sweep_id in published_sweeps(results):
        try:
            tables = {part.table for part in read_list(results, sweep_id).parts()}
            for table in sorted(tables):
                part_files(results, sweep_id, table)
        except DamagedPartError as error:
            return error
    return None


def read_part(path: Path, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """The rows of one part with exactly these columns; one that the file lacks is null.

    Raises:
        DamagedPartError: the file cannot be read, or its types are wrong.
    """
    try:
        check_regular(path)
        scan = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        stored = set(scan.collect_schema().names())
        known = scan.select(name for name in schema if name in stored).collect()
        return pl.concat([empty_table(tuple(schema.items())), known], how="diagonal_relaxed")
    except UNREADABLE as error:
        raise damage_error(path) from error


@lru_cache(maxsize=64)
def empty_table(columns: tuple[tuple[str, pl.DataType], ...]) -> pl.DataFrame:
    """A table of exactly these columns; to make one takes longer than to read a part."""
    return pl.DataFrame(schema=dict(columns))


RECORD_VERSION = 1
"""Increased when an entry is removed or changes its meaning; a newer version is an error."""
IMPORTED = "imported"
"""`origin` of the record of an imported sweep."""


TAG_WORD = "tag:"
"""Before a tag where sweeps are named; the id of a sweep has no colon."""
_MAX_TAG, _MAX_TAGS, _MAX_NOTE = 40, 50, 500
"""Characters of a tag, tags of a sweep, characters of a note: lists and pages show all of them."""


class SweepState(StrEnum):
    """The state of a sweep, as its driver wrote it last."""

    RUNNING = "running"
    """If no process holds the sweep's lease, its driver died."""
    FINISHED = "finished"
    STOPPED = "stopped"
    """The run ended regularly, but an abandoned device left repeats undone."""
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    IMPORTING = "importing"
    """Published rows are being stored."""


def _checked_stamp(text: str) -> str:
    datetime.fromisoformat(text)
    return text


def _joined(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, list) else value


Stamp = Annotated[str, AfterValidator(_checked_stamp)]
"""A time in UTC as ISO 8601 text."""
Count = Annotated[int, Field(ge=0)]
_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, frozen=True)


class RecordedPlan(_Part):
    """The size of the plan, and hashes that a resume compares with its own plan."""

    n_cells: Count
    repeats: Count
    cells_by_device: dict[str, Count] = {}
    models: list[str] = []
    platforms: list[str] = []
    sha256: dict[str, _Sha256] = {}


class RecordedSkip(_Part):
    """A cell that the plan skipped."""

    label: str
    reason: str


class Provenance(_Part):
    """Command line, versions, commit and host of the driver; `host` is a hash."""

    command_line: Annotated[str | None, BeforeValidator(_joined)] = None
    python_version: str | None = None
    versions: dict[str, str] = {}
    git_commit: str | None = None
    host: str | None = None


class SweepRecord(Provenance):
    """The record of one sweep.

    Attributes:
        run_started_utc: start of the newest run; a resume sets it.
        n_ok: repeats with a valid measurement at the end of the newest run, as the other counts.
        spec: the specification as JSON values; `SweepSpec` reads it.
        only: the pattern that restricted the plan.
        fleet: the hosts that the sweep was planned for, as JSON values; `Fleet` reads it.
        refused: platform key to the reason why the CPU of another host does not support it.
        content_sha256: of an imported release, so that it is stored only once.
        n_rows: of an imported release: its rows.
        dropped: of an imported release: rows that no figure uses, by reason.
    """

    record_version: Annotated[int, Field(ge=1)] = RECORD_VERSION
    sweep_id: str
    state: Annotated[SweepState, Field(strict=False)] | None = None
    origin: str | None = None
    started_utc: Stamp | None = None
    run_started_utc: Stamp | None = None
    finished_utc: Stamp | None = None
    n_ok: Count | None = None
    n_failed: Count | None = None
    n_left: Count | None = None
    spec_path: str | None = None
    spec_text: str | None = None
    spec: dict[str, object] | None = None
    only: str | None = None
    fleet: dict[str, object] | None = None
    refused: dict[str, str] = {}
    plan: RecordedPlan | None = None
    skipped: list[RecordedSkip] = []
    source: str | None = None
    release: str | None = None
    licence: str | None = None
    content_sha256: str | None = None
    files: list[str] = []
    n_rows: Count | None = None
    dropped: dict[str, Count] = {}
    aliases: dict[str, str] = {}
    notes: list[str] = []

    @property
    def is_imported(self) -> bool:
        """Whether the rows are published measurements, which cannot be resumed."""
        return self.origin == IMPORTED

    @property
    def counts(self) -> tuple[int, int, int] | None:
        """Valid, failed and pending repeats at the end of a run; `None` if no run has ended."""
        if self.n_ok is None or self.n_failed is None or self.n_left is None:
            return None
        return self.n_ok, self.n_failed, self.n_left

    def as_json(self) -> dict[str, object]:
        """The entries to store: those that were given, known or not."""
        return {"sweep_id": self.sweep_id, **self.model_dump(mode="json", exclude_unset=True)}


def _checked_tag(tag: str) -> str:
    if not (0 < len(tag) <= _MAX_TAG and tag.isprintable()) or {" ", ",", ":"} & set(tag):
        raise ValueError(f"a tag has 1 to {_MAX_TAG} characters without space, comma and colon")
    return tag


def _checked_note(note: str | None) -> str | None:
    if note is not None and not (len(note) <= _MAX_NOTE and note.isprintable()):
        raise ValueError(f"a note is one line of at most {_MAX_NOTE} characters")
    return note or None


class SweepTags(BaseModel):
    """What a person says about a sweep.

    Attributes:
        tags: each once, sorted.
        note: one line; `None` without one.

    Raises:
        ValueError: a tag or the note is not valid.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tags: tuple[Annotated[str, AfterValidator(_checked_tag)], ...] = ()
    note: Annotated[str | None, AfterValidator(_checked_note)] = None

    @field_validator("tags")
    @classmethod
    def _sort(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        if len(tags) > _MAX_TAGS:
            raise ValueError(f"a sweep has at most {_MAX_TAGS} tags")
        return tuple(sorted(set(tags)))


def tags_path(results: Path, sweep_id: str) -> Path:
    """The file with the tags of a sweep."""
    return results / "sweeps" / f"{sweep_id}.tags"


def read_tags(results: Path, sweep_id: str) -> SweepTags:
    """The tags of a sweep; empty without a file.

    Raises:
        BadFileError: the file is damaged.
    """
    path = tags_path(results, sweep_id)
    try:
        return SweepTags.model_validate(read_checked_object(path))
    except MissingFileError:
        return SweepTags()
    except ValidationError as error:
        raise BadFileError(f"{path} is damaged", "delete it, and tag the sweep again") from error


def shown_tags(results: Path, sweep_id: str) -> SweepTags:
    """The tags for display; a damaged file is a note that says so."""
    try:
        return read_tags(results, sweep_id)
    except BadFileError:
        return SweepTags(note="its file of tags is damaged")


def tagged_sweeps(results: Path, names: Sequence[str]) -> tuple[str, ...]:
    """The ids that names mean: `tag:NAME` is every sweep with this tag that has measurements.

    Raises:
        NoDataError: no such sweep has a tag; the remedy lists the tags.
    """
    found = dict.fromkeys(name for name in names if not name.startswith(TAG_WORD))
    wanted = [name for name in names if name.startswith(TAG_WORD)]
    tags_of = _tags_of_sweeps(results) if wanted else {}
    for name in wanted:
        tag = name.removeprefix(TAG_WORD)
        ids = [sweep_id for sweep_id, tags in tags_of.items() if tag in tags]
        if not ids:
            known = sorted({one for tags in tags_of.values() for one in tags})
            raise NoDataError(
                f"no sweep with measurements has the tag '{tag}'",
                f"known tags: {', '.join(known)}"
                if known
                else "`fleetrank sweep status SWEEP` with `tag=NAME` sets one",
            )
        found |= dict.fromkeys(ids)
    return tuple(found)


def _tags_of_sweeps(results: Path) -> dict[str, tuple[str, ...]]:
    return {
        sweep_id: shown_tags(results, sweep_id).tags
        for sweep_id in published_sweeps(results)
        if tags_path(results, sweep_id).exists()
    }


def stamp_now() -> str:
    """The time rounded to whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def record_problems(error: ValidationError, *place: str) -> list[str]:
    """The problems of a record, one text per entry; `place` leads to the part with the error."""
    return [
        f"its entry '{'.'.join(str(part) for part in (*place, *one['loc']))}': {one['msg']}"
        for one in error.errors(include_url=False, include_context=False)
    ]


def read_record(path: Path) -> SweepRecord:
    """Reads a record for display; it has only its id if the file is missing or damaged."""
    try:
        return SweepRecord.model_validate(read_json_object(path) | {"sweep_id": path.stem})
    except (BadFileError, ValidationError):
        return SweepRecord(sweep_id=path.stem)

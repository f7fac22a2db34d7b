"""The Parquet parts of a sweep, and the list that names each of them with its checksum.

The journal of a sweep holds its rows. `sweeps/SWEEP.parts` says which parts were made from which
bytes of the journal. It is replaced as a whole, so readers see all rows of one moment. Rows without
a sweep, such as evaluations, are stored like those of a sweep `NO_SWEEP`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

import polars as pl

from fleetrank.analysis.errors import DamagedPartError
from fleetrank.foundation.checksums import read_checked_object
from fleetrank.foundation.codec import CodecError, Json, from_plain
from fleetrank.foundation.errors import BadFileError, MissingFileError, warn_once
from fleetrank.foundation.small_file import check_regular, file_sha256
from fleetrank.foundation.wording import with_flags

MEASUREMENTS = "measurements"
"""The table of measurements; every other one is a side table."""
ASIDE = ".damaged"
"""In the names of what a repair put aside."""
PARTS = f"part-{'[0-9]' * 12}.parquet"
NO_SWEEP = "_no-sweep"
"""In place of a sweep's id; the id of a sweep starts with a letter or a digit."""
TAG_WORD = "tag:"
"""Before a tag where sweeps are named; the id of a sweep has no colon."""
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

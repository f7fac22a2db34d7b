"""The journal of a sweep: one checked JSON line per row; a row is durable when it is in it.

A line names the table of its row first and has the checksum of all before it last. The journal of a
finished sweep is packed with gzip; its content and its offsets stay the same.
"""

import gzip
import hashlib
import io
import logging
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, BinaryIO, Self, cast

import orjson

from fleetrank.analysis.stored.columns import ROW_KEY, SCHEMA, SCHEMA_VERSION
from fleetrank.analysis.stored.part_list import MEASUREMENTS, NO_SWEEP, REPAIR
from fleetrank.foundation.checksums import DIGITS, KEY, MARK, marked_checksum
from fleetrank.foundation.small_file import IrregularFileError, open_checked, open_regular
from fleetrank.foundation.wording import count_of
from fleetrank.orchestrator.durable import replace_file_with, storing, sync_folder
from fleetrank.orchestrator.errors import MovedFolderError, NewerSchemaError, StoreError
from fleetrank.orchestrator.keys import RowKey
from fleetrank.orchestrator.rows import Row
from fleetrank.orchestrator.table_fit import SCHEMAS, why_misfit

_log = logging.getLogger(__name__)
_DESCRIPTORS = Path("/proc/self/fd")
_TABLE = "table"
_START, _END = f',"{KEY}":"'.encode(), b'"}\n'
_N_END = len(_START) + len(MARK) + DIGITS + len(_END)
_KEY_TYPES = {name: int if SCHEMA[name].is_integer() else str for name in ROW_KEY}
WORTH_PACKING_BYTES = 1 << 20
"""A smaller journal stays as lines: it can be read with any tool, and packing it saves little."""
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A row and its table."""

    table: str
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalProblem:
    """A line without a row of this sweep; it stays in the file.

    Attributes:
        line: its number, from 1.
        is_whole: it is not damaged: its row is of another sweep, or does not fit its table.
        home: the other sweep that its row is of; `None` if it is not a row.
    """

    line: int
    reason: str
    is_whole: bool
    home: str | None = None


class BadLineError(ValueError):
    """A line has no valid row; the message gives the reason."""


class WrongRowError(BadLineError):
    """A line is whole, but its row is of another sweep (`home`), or does not fit its table."""

    home: str | None = None


def make_line(row: Mapping[str, object], table: str = MEASUREMENTS) -> bytes:
    """Returns the line of a row, including its line end.

    Raises:
        ValueError: the row does not fit the table.
    """
    if (why := why_misfit(row, table)) is not None:
        raise ValueError(f"{_label(row, table)}: {why}")
    return line_of(row, table)


def line_of(row: Mapping[str, object], table: str = MEASUREMENTS) -> bytes:
    """The same for a row that was checked when it was made, as those of `RowMaker` are."""
    body = b'{"%b":"%b",%b' % (_TABLE.encode(), table.encode(), orjson.dumps(row)[1:])
    return body[:-1] + _START + marked_checksum(body).encode() + _END


def parse_line(line: bytes, sweep_id: str) -> Entry:
    """Returns the row of a line of the journal of a sweep.

    Raises:
        WrongRowError: its row is of another sweep or table, or does not fit its table.
        BadLineError: it is damaged or torn.
        NewerSchemaError: it comes from a newer version of the table.
    """
    if not line.endswith(b"\n"):
        raise BadLineError("half a row, its writer died")
    if line[-_N_END : -_N_END + len(_START)] != _START or not line.endswith(_END):
        raise BadLineError("it has no checksum: it is torn, or fleetrank did not write it")
    body = line[:-_N_END] + b"}"
    if marked_checksum(body).encode() != line[-_N_END + len(_START) : -len(_END)]:
        raise BadLineError("its checksum does not match its content")
    try:
        row = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadLineError("not JSON") from error
    table = row.pop(_TABLE, None) if isinstance(row, dict) else None
    if not isinstance(table, str) or table not in SCHEMAS or not _has_key(row, table):
        raise WrongRowError("not a row of a table")
    version = row.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"a row has schema version {version}; this fleetrank knows {SCHEMA_VERSION}",
            "use the newer fleetrank that wrote it",
        )
    if (why := why_misfit(row, table)) is not None:
        raise WrongRowError(f"{_label(row, table)} does not fit the table: {why}")
    if (home := NO_SWEEP if row["sweep_id"] is None else row["sweep_id"]) != sweep_id:
        foreign = WrongRowError(f"foreign row, of sweep {row['sweep_id']!r}")
        foreign.home = str(home)
        raise foreign
    return Entry(table=table, row=row)


def _has_key(row: Row, table: str) -> bool:
    if table != MEASUREMENTS:
        return "sweep_id" in row
    return all(type(row.get(name)) is expected for name, expected in _KEY_TYPES.items())


def _label(row: Mapping[str, object], table: str) -> str:
    return RowKey.of(row).label if table == MEASUREMENTS else f"a row of {table}"


class Journal:
    """Appends rows, and reads them back even if the file was damaged in between.

    Only one process writes (`store.lease`); any number of processes may read. A context manager.
    """

    def __init__(self, path: Path) -> None:
        """The file is named after the sweep that every row is of."""
        self.path = path
        self.sweep_id = path.stem
        self.packed_path = path.with_name(f"{path.name}.gz")
        self._descriptor: int | None = None
        self._pending: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """Makes and opens the file now: an open file can be written even after it was moved.

        Raises:
            StoreError: the file cannot be made.
        """
        with storing(self.path):
            self._opened()

    def check_place(self) -> None:
        """Checks that the open file is still at its path.

        The open file moves with its folder. A driver that wrote to the old path would make that
        folder again and split its results.

        Raises:
            MovedFolderError: the workspace was moved or removed; `append` still writes to the file.
        """
        if self._descriptor is None or _is_at(self.path, self._descriptor):
            return
        if (place := self.place) == self.path:
            raise MovedFolderError(f"{place} was removed while it was in use", "restore it")
        raise MovedFolderError(
            f"{self.path} was moved while it was in use, to {place}", "change to the new folder"
        )

    @property
    def place(self) -> Path:
        """Where the file is now; its original path if it is not open or was removed."""
        if self._descriptor is None or _is_at(self.path, self._descriptor):
            return self.path
        now = (_DESCRIPTORS / str(self._descriptor)).readlink()
        return now if _is_at(now, self._descriptor) else self.path

    def append(self, row: Mapping[str, object], table: str = MEASUREMENTS) -> None:
        """Adds a row: safe from a crash of this process at once, from a power cut after `flush`.

        Raises:
            ValueError: the row does not fit the table.
            StoreError: the disk is full; the row is kept in memory and goes out with the next
                `append` or `flush` that succeeds.
        """
        self.append_lines([make_line(row, table)])

    def append_lines(self, lines: Iterable[bytes]) -> None:
        """The same for lines of `make_line`."""
        self._pending += lines
        self._write_pending()

    def flush(self) -> None:
        """Syncs every row appended so far; one sync for many rows.

        Raises:
            StoreError: as `append`.
        """
        self._write_pending()
        if self._descriptor is not None:
            with storing(self.path):
                os.fsync(self._descriptor)

    def close(self) -> None:
        """Flushes and closes the file."""
        try:
            self.flush()
        finally:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def rows(self, table: str = MEASUREMENTS) -> Iterator[Row]:
        """Yields the rows of a table in order; other lines are left out, bad ones with a warning.

        Raises:
            NewerSchemaError: a row comes from a newer version of the table.
            StoreError: the packed journal is damaged.
        """
        skipped: list[JournalProblem] = []
        for item in self.scan():
            if isinstance(item, JournalProblem):
                skipped.append(item)
            elif item.table == table:
                yield item.row
        if skipped:
            count, first = count_of(len(skipped), "line"), skipped[0]
            _log.warning("%s: %s left out, line %d: %s", self.path, count, first.line, first.reason)

    def scan(self) -> Iterator[Entry | JournalProblem]:
        """Yields rows and damaged lines."""
        for number, line in enumerate(self.lines(), start=1):
            yield self.parsed(line, number)

    def parsed(self, line: bytes, number: int) -> Entry | JournalProblem:
        """The row of a line, or why it is none; raises `NewerSchemaError`."""
        try:
            return parse_line(line, self.sweep_id)
        except BadLineError as error:
            is_whole, home = isinstance(error, WrongRowError), getattr(error, "home", None)
            return JournalProblem(line=number, reason=str(error), is_whole=is_whole, home=home)
        except NewerSchemaError as error:
            raise NewerSchemaError(
                f"{self.path}, line {number}: {error.message}", error.remedy
            ) from error

    def lines(self, start: int = 0) -> Iterator[bytes]:
        """Yields the lines as they are stored; raises `StoreError` for a damaged packed journal."""
        with self._reading() as file:
            file.seek(start)
            yield from file

    def blocks(self) -> Iterator[bytes]:
        """Yields the whole content in blocks; raises as `lines`."""
        with self._reading() as file:
            while block := file.read(_BLOCK_BYTES):
                yield block

    @property
    def state(self) -> tuple[int, int, int] | None:
        """Differs after each change of the file; `None` without one."""
        for path in (self.path, self.packed_path):
            try:
                found = path.stat()
            except FileNotFoundError:
                continue
            return found.st_ino, found.st_size, found.st_mtime_ns
        return None

    def pack(self) -> bool:
        """Packs the closed file, unless it is small; a kill at any point loses no row.

        The lines are removed after the packed file was read back from the disk.

        Raises:
            StoreError: the disk is full or broken; the lines are still there.
        """
        if not self.path.exists() or self.path.stat().st_size < WORTH_PACKING_BYTES:
            return False
        digest = hashlib.sha256()

        def pack_into(file: BinaryIO) -> None:
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed:
                for block in self.blocks():
                    digest.update(block)
                    packed.write(block)

        replace_file_with(self.packed_path, pack_into)
        with storing(self.path), gzip.open(self.packed_path) as packed:
            if hashlib.file_digest(packed, "sha256").digest() != digest.digest():
                raise StoreError(f"{self.packed_path} was not written well", "check the disk")
        with storing(self.path):
            self.path.unlink()
            sync_folder(self.path.parent)
        return True

    @contextmanager
    def _reading(self) -> Iterator[IO[bytes]]:
        with ExitStack() as stack:
            file: IO[bytes] = io.BytesIO()
            # Lines that exist are complete: a packed file beside them was or will be removed.
            try:
                for path in (self.path, self.packed_path):
                    with suppress(FileNotFoundError):
                        file = stack.enter_context(open_regular(path))
                        if path == self.packed_path:
                            file = cast("IO[bytes]", stack.enter_context(gzip.open(file)))
                        break
                yield file
            except (EOFError, zlib.error, gzip.BadGzipFile, IrregularFileError) as error:
                raise StoreError(
                    f"{path} is damaged: {getattr(error, 'strerror', None) or error}",
                    f"{REPAIR} keeps the damaged file under another name, and makes it again from "
                    "the Parquet parts",
                ) from error

    def _write_pending(self) -> None:
        with storing(self.path):
            while self._pending:
                self._write(self._pending[0])
                del self._pending[0]

    def _write(self, line: bytes) -> None:
        descriptor = self._opened()
        start = os.lseek(descriptor, 0, os.SEEK_END)
        try:
            written = 0
            while written < len(line):
                written += os.write(descriptor, line[written:])
        except OSError:
            # The next row would be appended to an incomplete row.
            os.ftruncate(descriptor, start)
            raise

    def _opened(self) -> int:
        if self._descriptor is not None:
            return self._descriptor
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.packed_path.exists():
            if not self.path.exists():
                replace_file_with(self.path, lambda file: file.writelines(self.blocks()))
            self.packed_path.unlink()
        descriptor = open_checked(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            end = os.lseek(descriptor, 0, os.SEEK_END)
            if end and os.pread(descriptor, 1, end - 1) != b"\n":
                # The last writer died within a line; the incomplete row becomes a separate line.
                os.write(descriptor, b"\n")
            sync_folder(self.path.parent)
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return descriptor


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False


class JournalTail:
    """Reads each whole line of a growing journal once; a half-written one is left for later.

    The file can be replaced meanwhile, because it is packed or repaired. Then all of it is read
    again, and a row that was already seen is skipped.
    """

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)
        self._offset = 0
        self._state: tuple[int, int, int] | None = None
        self._seen: set[int] = set()

    def new_rows(self) -> Iterator[Row]:
        """Returns the measurements since the last call, in order; bad lines are skipped.

        `results verify` lists lines that are not rows, and reports a damaged packed journal.
        """
        state = self._journal.state
        if state is None or state == self._state:
            return
        if self._state is not None and state[0] != self._state[0]:
            self._offset = 0
        self._state = state
        try:
            for line in self._journal.lines(self._offset):
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                if (row := self._row(line)) is not None:
                    yield row
        except StoreError as error:
            _log.warning("%s", error)

    def _row(self, line: bytes) -> Row | None:
        try:
            entry = parse_line(line, self._journal.sweep_id)
        except (BadLineError, NewerSchemaError):
            return None
        key = hash(RowKey.of(entry.row)) if entry.table == MEASUREMENTS else None
        if key is None or key in self._seen:
            return None
        # A key takes five times the memory; a collision in a million rows has probability 1e-7.
        self._seen.add(key)
        return entry.row

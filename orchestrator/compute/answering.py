"""Answers jobs from the results folder; runs in a child process, never in the server's own."""

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from fleetrank.analysis.errors import QueryError
from fleetrank.analysis.sql import left_out_note, query_frames, run_query
from fleetrank.analysis.sql_values import rows_of
from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.analysis.tables.formats import FORMULA
from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.strict_json import count_not_finite, json_text
from fleetrank.foundation.vocabulary import Form
from fleetrank.orchestrator.compute.jobs import JSON_TYPE, Job, JobKind, Result
from fleetrank.orchestrator.durable import storing

if TYPE_CHECKING:
    from fleetrank.analysis.panel.session import Session
    from fleetrank.analysis.stored.selection import Selection

_MEDIA_TYPES = {
    Form.JSON: JSON_TYPE,
    Form.CSV: "text/csv; charset=utf-8",
    Form.TABLE: "text/plain; charset=utf-8",
    Form.MARKDOWN: "text/markdown; charset=utf-8",
    Form.LATEX: "application/x-latex; charset=utf-8",
}
_MAX_ANSWER_BYTES = 16 << 20
"""Maximum size of a query's answer in memory; the command line writes larger ones to a file."""
_MAX_LISTED = 100_000
"""Maximum number of listed devices, models or sweeps."""


class Answering:
    """Answers from one results folder; keeps the last scan and its session for the next table."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._scan: tuple[tuple[str, ...], pl.LazyFrame] | None = None
        self._session: Session | None = None
        self._ways: Mapping[JobKind, Callable[[Job], Result]] = {
            JobKind.PAGE: self._page,
            JobKind.TABLE: self._table,
            JobKind.VIEW: self._view,
            JobKind.QUERY: self._query,
            JobKind.QUERY_FILE: self._query_file,
        }

    def forget(self) -> None:
        """Drops the last scan, because the files have changed."""
        self._scan = self._session = None

    def answer(self, job: Job) -> Result:
        """Answers one job.

        Raises:
            AnalysisError: the job cannot be answered; message and remedy explain why.
            UsageError: its selectors are wrong.
        """
        try:
            return self._ways[job.kind](job)
        except FileNotFoundError:
            # Parts were merged between listing the folder and reading its files.
            self.forget()
            return self._ways[job.kind](job)

    def _frame(self, *sweeps: str) -> pl.LazyFrame:
        if self._scan is None or self._scan[0] != sweeps:
            self._session = None
            scan = load_measurements(self._results, sweep=sweeps or None, origins=ORIGINS)
            self._scan = (sweeps, scan)
        return self._scan[1]

    def _selection(self, job: Job) -> "Selection":
        from fleetrank.orchestrator.workspace.selectors import Selectors

        return Selectors.model_validate_json(job.selectors).selection(self._results)

    def _page(self, job: Job) -> Result:
        from fleetrank.analysis.report.evidence import gather
        from fleetrank.analysis.report.page import render_page

        html = render_page(gather(self._results, self._selection(job)), datetime.now(UTC))
        return Result(media_type="text/html; charset=utf-8", body=html.encode())

    def _table(self, job: Job) -> Result:
        from fleetrank.analysis.panel.session import Session
        from fleetrank.analysis.tables.formats import render
        from fleetrank.analysis.tables.tables import session_table

        selection = self._selection(job)
        frame = self._frame(*selection.sweeps)
        # The older session is freed before the table needs memory.
        session = self._session or Session(frame, selection, results=self._results)
        self._session = session.asked(selection)
        table = session_table(job.name, self._session)
        return Result(
            media_type=_MEDIA_TYPES[Form(job.form)], body=render(table, job.form).encode()
        )

    def _view(self, job: Job) -> Result:
        # The name comes from our own list, never from outside.
        frame = run_query(self._results, f"FROM {job.name}", max_rows=_MAX_LISTED)
        return _rows(frame, is_cut=False, left_out=None)

    def _query(self, job: Job) -> Result:
        # One more row than is shown, to find out whether more rows exist.
        frame = run_query(
            self._results, job.name, timeout_s=job.timeout_s, max_rows=job.max_rows + 1
        )
        if frame.estimated_size() > _MAX_ANSWER_BYTES:
            raise QueryError(
                f"the answer takes more than {_MAX_ANSWER_BYTES >> 20} MiB",
                "select fewer rows or columns, or use `fleetrank query` with `format=parquet`",
            )
        note = left_out_note(self._results, job.name)
        return _rows(frame.head(job.max_rows), is_cut=frame.height > job.max_rows, left_out=note)

    def _query_file(self, job: Job) -> Result:
        """Writes the rows into the job's file; the answer reports how many there are."""
        # One more row than is written, to find out whether more rows exist.
        frames = query_frames(
            self._results, job.name, timeout_s=job.timeout_s, max_rows=job.max_rows + 1
        )
        path = Path(job.out)
        with storing(path):
            written = write_rows(frames, path, Form(job.form), job.max_rows)
        content = {**asdict(written), "left_out": left_out_note(self._results, job.name)}
        return Result(media_type=JSON_TYPE, body=_json(content))


def _rows(frame: pl.DataFrame, *, is_cut: bool, left_out: str | None) -> Result:
    content = {"rows": list(rows_of(frame)), "is_cut": is_cut, "left_out": left_out}
    return Result(media_type=JSON_TYPE, body=_json(content))


def _json(content: object) -> bytes:
    def as_text(value: object) -> str:
        return value.hex() if isinstance(value, bytes) else str(value)

    return json_text(content, as_text=as_text).encode()


Frames = Iterable[pl.DataFrame]
_GROUP_BYTES = 64 << 20
"""Size of a Parquet row group in memory; a reader loads one row group at a time."""
_JSON_ROWS = 100
"""Number of rows converted to text together; with 10,000 samples a row they take 10 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The outcome of writing a query's rows.

    Attributes:
        is_cut: whether more rows existed than were written.
        n_not_finite: number of NaN and infinite floats; JSON cannot hold them, so they are null.
    """

    is_cut: bool
    n_not_finite: int


def write_rows(frames: Frames, path: Path, form: Form, max_rows: int) -> Written:
    """Writes at most `max_rows` rows; further rows of the frames are not written.

    Raises:
        QueryError: the format cannot hold a value or a column.
        OSError: the file cannot be written.
    """
    heights: list[int] = []

    def first() -> Iterator[pl.DataFrame]:
        for frame in frames:
            yield frame.head(max_rows - sum(heights))
            heights.append(frame.height)

    with path.open("wb") as file:
        n_not_finite = _WRITERS[form](first(), file)
    return Written(is_cut=sum(heights) > max_rows, n_not_finite=n_not_finite)


def _write_json(frames: Frames, file: BinaryIO) -> int:
    """A list of objects, indented by two."""
    n_not_finite, before = 0, b"[\n"
    waiting = chain.from_iterable(map(rows_of, frames))
    while rows := list(islice(waiting, _JSON_ROWS)):
        # Without the brackets of this part of the list.
        file.write(before + json_text(rows, indent=2)[2:-2].encode())
        n_not_finite += count_not_finite([list(row.values()) for row in rows])
        before = b",\n"
    file.write(b"[]\n" if before == b"[\n" else b"\n]\n")
    return n_not_finite


def _write_table(frames: Frames, file: BinaryIO) -> int:
    """Writes JSON for the process that prints it: text where JSON cannot hold a value."""
    rows = [_shown(row) for frame in frames for row in rows_of(frame)]
    file.write(json_text(rows).encode())
    return 0


def _write_csv(frames: Frames, file: BinaryIO) -> int:
    """Writes a header and the rows; nested values are JSON, and no text is a formula."""
    n_not_finite = 0

    def cell(value: object) -> object:
        if isinstance(value, list | dict):
            return json_text(value)
        return re.sub(FORMULA, r"'\g<0>", value) if isinstance(value, str) else value

    with io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True) as text:
        writer = csv.writer(text, lineterminator="\n")
        for number, frame in enumerate(frames):
            if number == 0:
                writer.writerow(map(cell, frame.columns))
            for row in rows_of(frame):
                nested = [value for value in row.values() if isinstance(value, list | dict)]
                n_not_finite += count_not_finite(nested)
                writer.writerow(map(cell, row.values()))
    return n_not_finite


def _write_parquet(frames: Frames, file: BinaryIO) -> int:
    with failing_as(
        QueryError, "a column does not fit into Parquet", "cast it to VARCHAR", pa.ArrowException
    ):
        tables = (frame.to_arrow(compat_level=pl.CompatLevel.oldest()) for frame in frames)
        first = next(tables)
        with pq.ParquetWriter(
            file, first.schema, compression="zstd", write_page_checksum=True
        ) as writer:
            for group in _row_groups(chain([first], tables)):
                writer.write_table(group)
    return 0


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(one.nbytes for one in waiting) >= _GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting.clear()
    if waiting:
        yield pa.concat_tables(waiting)


def _shown(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): _shown(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_shown(part) for part in value]
    return value


_WRITERS: Mapping[Form, Callable[[Frames, BinaryIO], int]] = {
    Form.JSON: _write_json,
    Form.TABLE: _write_table,
    Form.CSV: _write_csv,
    Form.PARQUET: _write_parquet,
}

"""Answers jobs from the results folder; runs in a child process, never in the server's own."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from fleetrank.analysis.errors import QueryError
from fleetrank.analysis.sql.left_out import left_out_note
from fleetrank.analysis.sql.query import query_frames, run_query
from fleetrank.analysis.sql.sql_values import rows_of
from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.foundation.strict_json import json_text
from fleetrank.orchestrator.compute.jobs import JSON_TYPE, Job, JobKind, Result, RowForm
from fleetrank.orchestrator.durable import store_error

if TYPE_CHECKING:
    from fleetrank.analysis.dossiers.dossier import Dossier
    from fleetrank.analysis.panel.session import Session
    from fleetrank.analysis.stored.selection import Selection

_MEDIA_TYPES = {
    "json": JSON_TYPE,
    "csv": "text/csv; charset=utf-8",
    "table": "text/plain; charset=utf-8",
    "markdown": "text/markdown; charset=utf-8",
    "latex": "application/x-latex; charset=utf-8",
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
            JobKind.DEVICE: self._device,
            JobKind.MODEL: self._model,
            JobKind.SWEEP: self._sweep,
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
        return Result(media_type=_MEDIA_TYPES[job.form], body=render(table, job.form).encode())

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
        from fleetrank.orchestrator.compute.row_files import write_rows

        # One more row than is written, to find out whether more rows exist.
        frames = query_frames(
            self._results, job.name, timeout_s=job.timeout_s, max_rows=job.max_rows + 1
        )
        path = Path(job.out)
        try:
            written = write_rows(frames, path, RowForm(job.form), job.max_rows)
        except OSError as error:
            raise store_error(path, error) from error
        content = {**asdict(written), "left_out": left_out_note(self._results, job.name)}
        return Result(media_type=JSON_TYPE, body=_json(content))

    def _device(self, job: Job) -> Result:
        from fleetrank.analysis.dossiers.subjects import device_dossier

        return _content(device_dossier(self._frame(), job.name))

    def _model(self, job: Job) -> Result:
        from fleetrank.analysis.dossiers.subjects import model_dossier

        return _content(model_dossier(self._frame(), job.name))

    def _sweep(self, job: Job) -> Result:
        from fleetrank.analysis.dossiers.subjects import sweep_dossier

        return _content(sweep_dossier(self._frame(job.name), job.name))


def _rows(frame: pl.DataFrame, *, is_cut: bool, left_out: str | None) -> Result:
    content = {"rows": list(rows_of(frame)), "is_cut": is_cut, "left_out": left_out}
    return Result(media_type=JSON_TYPE, body=_json(content))


def _content(dossier: "Dossier") -> Result:
    from fleetrank.analysis.tables.formats import render

    tables = [json.loads(render(table, "json")) for table in dossier.tables]
    content = {"tables": tables, "series": [series.as_json() for series in dossier.series]}
    return Result(media_type=JSON_TYPE, body=_json(content))


def _json(content: object) -> bytes:
    return json_text(content, as_text=_as_text).encode()


def _as_text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)

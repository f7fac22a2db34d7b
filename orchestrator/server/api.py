"""The JSON API: the tables, relations, SQL and progress of the command line over HTTP."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, Field, JsonValue
from starlette.concurrency import run_in_threadpool

from fleetrank.analysis.sql import ViewColumn, described_views
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.foundation.vocabulary import Form, TableForm
from fleetrank.orchestrator.compute.child import Job, JobKind
from fleetrank.orchestrator.server.answers import Answer, Answers, NotFoundError
from fleetrank.orchestrator.server.live import Live
from fleetrank.orchestrator.sweep.sweep_status import SweepStatus
from fleetrank.orchestrator.workspace.selectors import Selectors

DESCRIPTION = """\
Measurements of one workspace and the analysis of them. Read-only: every path is a GET.

The unit is the last part of a name: `_ns`, `_ms`, `_bytes`, `_mj`, `_percent`; `_utc` is a time. A
missing or undefined value is null, never 0. Selectors are those of `fleetrank report show`.

The header `fleetrank-made` gives the time when an answer was computed. `fleetrank-current` is false
if the results have changed since: while a measurement runs on this host, the last answer is
returned. Status 503: try again after `Retry-After` seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """The objects that answer questions about one results folder."""

    answers: Answers
    live: Live

    async def ask(self, job: Job) -> Answer:
        """Returns the answer to a job; a cached answer needs no thread.

        Raises:
            RefusedError: the job has no answer.
            BusyError: the answer cannot be computed now.
        """
        remembered = self.answers.remembered(job)
        if remembered is not None:
            return remembered
        return await run_in_threadpool(self.answers.get, job)


def _context(request: Request) -> ServerContext:
    found: ServerContext = request.app.state.context
    return found


Context = Annotated[ServerContext, Depends(_context)]


def sent(answer: Answer, request: Request) -> Response:
    """Returns the answer as a response; only headers if the client already has it."""
    headers = {
        "etag": f'"{answer.tag}"',
        "fleetrank-made": answer.made_utc.isoformat(timespec="seconds"),
        "fleetrank-fingerprint": answer.fingerprint,
        "fleetrank-current": "true" if answer.is_current else "false",
    }
    if answer.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(answer.body, media_type=answer.media_type, headers=headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The answer of every error."""

    message: Annotated[str, Field(description="What happened.")]
    remedy: Annotated[str, Field(description="What to do about it.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAnswer:
    """A table."""

    title: str
    notes: Annotated[
        list[str], Field(description="Notes for the reader: n, what was dropped and why.")
    ]
    explanation: Annotated[
        list[str], Field(description="What the columns mean, and how the figures are computed.")
    ]
    rows: Annotated[
        list[dict[str, JsonValue]], Field(description="Missing and undefined figures are null.")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsAnswer:
    """Rows of a query or a relation."""

    rows: list[dict[str, JsonValue]]
    is_cut: Annotated[bool, Field(description="Whether there are more rows than max_rows.")]
    left_out: Annotated[
        str | None,
        Field(
            description="How many stored rows are not in the view measurements that the SQL names, "
            "and why; null if there are none."
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A table that can be requested."""

    name: str
    settings: Annotated[list[str], Field(description="Its settings, for `set`.")]
    words: Annotated[
        dict[str, list[str]],
        Field(
            description="The only values of a setting, the default first; others take free text."
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressAnswer:
    """Progress of the sweeps."""

    fingerprint: Annotated[
        str, Field(description="Fingerprint of the published results; changes when they change.")
    ]
    sweeps: Annotated[list[SweepStatus], Field(description="Running sweeps and the newest ones.")]


class TableQuery(Selectors):
    """Selectors, and the form of the answer."""

    format: TableForm = Field(default=Form.JSON, description="Form of the table.")


class QueryQuery(BaseModel, extra="forbid"):
    """One SELECT and its limits."""

    sql: str = Field(
        min_length=1,
        max_length=20_000,
        description="One SELECT; /api/columns lists the columns.",
    )
    max_rows: int = Field(default=1000, ge=1, le=10_000, description="Maximum number of rows.")
    timeout_s: float = Field(
        default=10.0, ge=0.1, le=30.0, description="Time limit of the query in seconds."
    )


_Responses = dict[int | str, dict[str, Any]]
_PROBLEMS: _Responses = {
    status: {"model": Problem} for status in (400, 401, 403, 404, 421, 422, 503)
}
_ROWS: _Responses = {200: {"model": RowsAnswer}, **_PROBLEMS}
_TEXTS = ("text/csv", "text/plain", "text/markdown", "application/x-latex")
_TABLE: _Responses = {
    200: {
        "model": TableAnswer,
        "content": {kind: {"schema": {"type": "string"}} for kind in _TEXTS},
    },
    **_PROBLEMS,
    409: {"model": Problem},
}

router = APIRouter(prefix="/api")


@router.get("/transfer", responses=_TABLE, summary="Rank transfer")
@router.get("/frm", responses=_TABLE, summary="FRM of every model on every platform")
@router.get("/pareto", responses=_TABLE, summary="Frontiers of source and target")
@router.get("/predictions", responses=_TABLE, summary="Models of a device with few values")
async def table_by_path(
    asked: Annotated[Selectors, Query()], context: Context, request: Request
) -> Response:
    """The same as `/api/tables/` with this name, as JSON."""
    name = request.url.path.rpartition("/")[2]
    return sent(await context.ask(table_job(name, asked)), request)


@router.get("/tables", summary="List of tables")
async def tables() -> list[TableName]:
    """Every table by name, with its own settings for `set` and their words."""
    return [
        TableName(
            name=name,
            settings=[one.name for one in spec.settings],
            words={one.name: list(one.words) for one in spec.settings if one.words},
        )
        for name, spec in TABLES.items()
    ]


@router.get("/tables/{name}", responses=_TABLE, summary="Any table, in five forms")
async def table(
    name: Annotated[str, Path(description="Name of a table that /api/tables lists.")],
    asked: Annotated[TableQuery, Query()],
    context: Context,
    request: Request,
) -> Response:
    """The table that `fleetrank report show NAME` prints."""
    selectors = Selectors.model_validate(asked.model_dump(by_alias=True, exclude={"format"}))
    return sent(await context.ask(table_job(name, selectors, asked.format)), request)


@router.get("/devices", responses=_ROWS, summary="Devices measured, with their newest facts")
@router.get("/models", responses=_ROWS, summary="Models measured, with their newest facts")
@router.get("/sweeps", responses=_ROWS, summary="Sweeps with published rows, the newest first")
async def relation(context: Context, request: Request) -> Response:
    """All rows of this relation of SQL; `/api/columns` says what its columns mean."""
    view = request.url.path.rpartition("/")[2]
    return sent(await context.ask(Job(kind=JobKind.VIEW, name=view)), request)


@router.get("/columns", summary="What SQL sees")
async def columns() -> list[ViewColumn]:
    """Every column of every relation, with type, unit and meaning."""
    return described_views()


@router.get(
    "/query",
    responses=_ROWS,
    summary="One SELECT over measurements, devices, models and sweeps",
)
async def query(
    asked: Annotated[QueryQuery, Query()], context: Context, request: Request
) -> Response:
    """Runs one SELECT. The method is GET, because the server is read-only.

    Files, settings and a second statement are not allowed; time, memory and rows are limited.
    """
    return sent(await context.ask(query_job(asked)), request)


@router.get("/progress", responses=_PROBLEMS, summary="Progress of the sweeps")
async def progress(context: Context) -> ProgressAnswer:
    """Read from the growing journals, so it is also answered during a measurement."""
    found = await run_in_threadpool(context.live.progress)
    return ProgressAnswer(fingerprint=context.answers.fingerprint(), sweeps=found)


def table_job(name: str, selectors: Selectors, form: TableForm = Form.JSON) -> Job:
    """Returns the job of a table; rejects errors that can be found without reading a file.

    Raises:
        NotFoundError: the table does not exist.
        UsageError: a selector is wrong.
    """
    if name not in TABLES:
        raise NotFoundError(f"unknown table '{name}'", f"use one of: {', '.join(TABLES)}")
    selectors.selection()
    text = selectors.model_dump_json(by_alias=True)
    return Job(kind=JobKind.TABLE, name=name, selectors=text, form=form.value)


def query_job(asked: QueryQuery) -> Job:
    """Returns the job of one SELECT."""
    return Job(
        kind=JobKind.QUERY, name=asked.sql, timeout_s=asked.timeout_s, max_rows=asked.max_rows
    )

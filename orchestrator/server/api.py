"""The JSON API: the tables, relations, SQL and progress of the command line over HTTP."""

import asyncio
from dataclasses import dataclass, replace
from threading import Event
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi import Path as InPath
from pydantic import BaseModel, Field, JsonValue
from starlette.concurrency import run_in_threadpool

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.sql_views import ViewColumn, described_views
from fleetrank.analysis.tables.tables import TABLES, part_of
from fleetrank.foundation.errors import reworded
from fleetrank.foundation.vocabulary import Form, TableForm
from fleetrank.orchestrator.compute.jobs import Job, JobKind
from fleetrank.orchestrator.server.answers import LOOK_S, Answer, Answers, NotFoundError
from fleetrank.orchestrator.sweep.sweep_status import Live, SweepStatus
from fleetrank.orchestrator.workspace.selectors import MAX_TEXT, Selectors
from fleetrank.orchestrator.workspace.workspace import Workspace

DESCRIPTION = """\
Measurements of one workspace and the analysis of them. Read-only: every path is a GET.

The unit is the last part of a name: `_ns`, `_ms`, `_bytes`, `_mj`, `_percent`; `_utc` is a time. A
missing or undefined value is null, never 0. Selectors are those of `fleetrank report show`.

The header `fleetrank-made` gives the time when an answer was computed. A client that sends `etag`
back in `If-None-Match` gets status 304 while the results are the same, and also while a measurement
runs on this host: `fleetrank-current` is then false if they have changed. Status 503: try again
after `Retry-After` seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """The objects that answer questions about one results folder, and the request that asks."""

    answers: Answers
    live: Live
    workspace: Workspace
    request: Request | None = None

    async def ask(self, job: Job) -> Answer:
        """Returns the answer to a job; one that the client has needs no thread.

        A client that leaves gives up its place, and ends its query.

        Raises:
            RefusedError: the job has no answer.
            BusyError: the answer cannot be computed now.
        """
        shown = self.request.headers.get("if-none-match", "") if self.request else ""
        if (had := self.answers.had(job, shown)) is not None:
            return had
        left = Event()
        answering = asyncio.ensure_future(run_in_threadpool(self.answers.get, job, left))
        while not (await asyncio.wait([answering], timeout=LOOK_S))[0]:
            if self.request is not None and await self.request.is_disconnected():
                self.answers.leave(left)
        return answering.result()


def _context(request: Request) -> ServerContext:
    found: ServerContext = request.app.state.context
    return replace(found, request=request)


Context = Annotated[ServerContext, Depends(_context)]


def sent(answer: Answer) -> Response:
    """Returns the answer as a response; only headers if the client already has it."""
    headers = {
        "fleetrank-fingerprint": answer.fingerprint,
        "fleetrank-current": "true" if answer.is_current else "false",
    }
    if answer.tag is not None:
        headers["etag"] = f'"{answer.tag}"'
    if answer.body is None or answer.made_utc is None:
        return Response(status_code=304, headers=headers)
    headers["fleetrank-made"] = answer.made_utc.isoformat(timespec="seconds")
    return Response(answer.body, media_type=answer.media_type, headers=headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiProblem:
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
    question: str
    parts: Annotated[
        dict[str, str], Field(description="What each part shows; the first is the usual one.")
    ]
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
    """Selectors, the part of the table, and the form of the answer."""

    part: str = Field(
        default="", max_length=MAX_TEXT, description="Part of the table (default: the first)."
    )
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
_PROBLEMS: _Responses = {status: {"model": ApiProblem} for status in (400, 401, 403, 404, 422, 503)}
_ROWS: _Responses = {200: {"model": RowsAnswer}, **_PROBLEMS}
_TEXTS = ("text/csv", "text/plain", "text/markdown", "application/x-latex")
_TABLE: _Responses = {
    200: {
        "model": TableAnswer,
        "content": {kind: {"schema": {"type": "string"}} for kind in _TEXTS},
    },
    **_PROBLEMS,
    409: {"model": ApiProblem},
}
api = APIRouter(prefix="/api")


@api.get("/tables", summary="List of tables")
async def tables() -> list[TableName]:
    """Every table by name: its question, its parts, its settings for `set` and their words."""
    return [
        TableName(
            name=name,
            question=spec.question,
            parts={part: one.shows for part, one in spec.parts.items()},
            settings=list(spec.settings),
            words={key: list(one.words) for key, one in spec.settings.items() if one.words},
        )
        for name, spec in TABLES.items()
    ]


@api.get("/tables/{name}", responses=_TABLE, summary="Any table, in five forms")
async def table(
    name: Annotated[str, InPath(description="Name of a table that /api/tables lists.")],
    asked: Annotated[TableQuery, Query()],
    context: Context,
) -> Response:
    """The table that `fleetrank report show NAME` prints."""
    selectors = Selectors.model_validate(
        asked.model_dump(by_alias=True, exclude={"format", "part"})
    )
    full_name = f"{name}/{asked.part}" if asked.part else name
    return sent(await context.ask(table_job(full_name, selectors, asked.format)))


@api.get("/devices", responses=_ROWS, summary="Devices measured, with their newest facts")
@api.get("/models", responses=_ROWS, summary="Models measured, with their newest facts")
@api.get("/sweeps", responses=_ROWS, summary="Sweeps with published rows, the newest first")
async def relation(context: Context, request: Request) -> Response:
    """All rows of this relation of SQL; `/api/columns` says what its columns mean."""
    view = request.url.path.rpartition("/")[2]
    return sent(await context.ask(Job(kind=JobKind.VIEW, name=view)))


@api.get("/columns", summary="What SQL sees")
async def columns() -> list[ViewColumn]:
    """Every column of every relation, with type, unit and meaning."""
    return described_views()


@api.get(
    "/query",
    responses=_ROWS,
    summary="One SELECT over measurements, devices, models and sweeps",
)
async def query(asked: Annotated[QueryQuery, Query()], context: Context) -> Response:
    """Runs one SELECT. The method is GET, because the server is read-only.

    Files, settings and a second statement are not allowed; time, memory and rows are limited.
    """
    return sent(await context.ask(query_job(asked)))


@api.get("/progress", responses=_PROBLEMS, summary="Progress of the sweeps")
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
    with reworded(NotFoundError, AnalysisError):
        part_of(name)
    selectors.selection()
    text = selectors.model_dump_json(by_alias=True)
    return Job(kind=JobKind.TABLE, name=name, selectors=text, form=form.value)


def query_job(asked: QueryQuery) -> Job:
    """Returns the job of one SELECT."""
    return Job(
        kind=JobKind.QUERY, name=asked.sql, timeout_s=asked.timeout_s, max_rows=asked.max_rows
    )

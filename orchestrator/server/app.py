"""The local web application: the JSON API, the live report, a form for SQL, and their errors."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import resources
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import Annotated, Any
from urllib.parse import urlencode

import jinja2
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, JsonValue, model_validator
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import HTMLResponse, JSONResponse

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.labels import keys_in, labels_of
from fleetrank.analysis.report.page import templates
from fleetrank.analysis.report.page_tables import HtmlTable, html_of_rows
from fleetrank.analysis.sql import ViewColumn, described_views
from fleetrank.analysis.tables.formats import value_text
from fleetrank.analysis.tables.tables import TABLES, part_of
from fleetrank.foundation.errors import FleetError, duration, reworded
from fleetrank.foundation.vocabulary import Form, TableForm
from fleetrank.orchestrator.compute.child import Job, JobKind
from fleetrank.orchestrator.errors import OrchestratorError
from fleetrank.orchestrator.progress import decided
from fleetrank.orchestrator.server.access import Access, Gate
from fleetrank.orchestrator.server.answers import (
    LOOK_S,
    RETRY_AFTER_S,
    Answer,
    Answers,
    NotFoundError,
    status_of,
)
from fleetrank.orchestrator.sweep.sweep_status import Live, SweepStatus
from fleetrank.orchestrator.workspace.selectors import MAX_TEXT, PAGE_SELECTORS, Selectors
from fleetrank.orchestrator.workspace.workspace import package_versions

# The JSON API: the tables, relations, SQL and progress of the command line over HTTP.

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
_PROBLEMS: _Responses = {status: {"model": Problem} for status in (400, 401, 403, 404, 422, 503)}
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


# The pages: the growing report with the running sweeps above it, and a form for SQL.

pages = APIRouter(include_in_schema=False)
_ASSETS: Mapping[str, str] = MappingProxyType(
    {
        "page.css": "text/css",
        "server.css": "text/css",
        "live.js": "text/javascript",
    }
)
_OF_REPORT = frozenset({"page.css"})
"""Shared with the report, so that both look the same."""
_NEWEST = 10
"""Attempts that the home page lists."""


class PageQuery(Selectors):
    """The selectors of the report page; the others are an error."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_others(cls, given: Mapping[str, object]) -> Mapping[str, object]:
        others = sorted(set(given) - set(PAGE_SELECTORS))
        if others:
            raise ValueError(
                f"the page has no selector '{others[0]}'; it has {', '.join(PAGE_SELECTORS)}"
            )
        return given

    def job(self) -> Job:
        """The page as a job."""
        text = self.model_dump_json(include=set(PAGE_SELECTORS))
        return Job(kind=JobKind.PAGE, selectors=text)

    def suffix(self) -> str:
        """The selection as the query part of an address."""
        given = self.model_dump(exclude_defaults=True)
        return f"?{urlencode(given, doseq=True)}" if given else ""


@pages.get("/", name="home")
async def home(asked: Annotated[PageQuery, Query()], context: Context) -> Response:
    """The report, and the running sweeps above it."""
    live = await _live(context)
    return render(
        "home.html.j2", {"title": "Report", "here": "/", "suffix": asked.suffix(), **live}
    )


@pages.get("/live")
async def live_part(context: Context) -> Response:
    """The changing part of the home page; a visible page requests it every two seconds."""
    return render("live.html.j2", await _live(context))


@pages.get("/report")
async def report(asked: Annotated[PageQuery, Query()], context: Context) -> Response:
    """The page that `report build` writes; its own policy names its scripts by their hashes."""
    try:
        answer = await context.ask(asked.job())
    except OrchestratorError as error:
        return render(
            "no_report.html.j2", {"title": "No report", "error": error, "suffix": asked.suffix()}
        )
    response = sent(answer)
    response.headers["content-security-policy"] = "frame-ancestors 'self'"
    return response


@pages.get("/query")
async def query_page(
    context: Context, sql: Annotated[str, Query(max_length=20_000)] = ""
) -> Response:
    """A form for SQL, the answer, and the available columns."""
    answer: HtmlTable | None = None
    error: OrchestratorError | None = None
    if sql.strip():
        try:
            found = json.loads((await context.ask(query_job(QueryQuery(sql=sql)))).body or b"")
            notes = [f"{found['left_out']}."] if found["left_out"] else []
            if found["is_cut"]:
                notes.append("The first 1,000 rows; /api/query?max_rows= returns more.")
            answer = html_of_rows("answer", "Answer", found["rows"], notes)
        except OrchestratorError as refused:
            error = refused
    values = {"title": "SQL", "here": "/query", "sql": sql, "answer": answer, "error": error}
    return render("query.html.j2", {**values, "columns": described_views()})


@pages.get("/assets/{name}")
async def asset(name: str) -> Response:
    """A style sheet or script."""
    if name not in _ASSETS:
        raise HTTPException(404)
    package = "analysis" if name in _OF_REPORT else "orchestrator"
    folder = "report/templates" if name in _OF_REPORT else "server/assets"
    path = resources.files(f"fleetrank.{package}").joinpath(folder, name)
    return Response(path.read_text(encoding="utf-8"), media_type=_ASSETS[name])


async def _live(context: ServerContext) -> dict[str, object]:
    found = await run_in_threadpool(context.live.progress)
    latest = [attempt for sweep in found for attempt in sweep.latest]
    latest.sort(key=lambda attempt: str(attempt["finished_utc"]), reverse=True)
    texts = [str(attempt["platform_key"]) for attempt in latest[:_NEWEST]]
    texts += [str(device["running"]) for sweep in found for device in sweep.devices]
    texts += [str(made["platform"]) for sweep in found for made in sweep.decisions]
    return {
        "sweeps": found,
        "latest": latest[:_NEWEST],
        "said": labels_of(keys_in(texts)).said,
        "fingerprint": context.answers.fingerprint(),
    }


@cache
def _environment() -> jinja2.Environment:
    environment = templates("fleetrank.orchestrator", "server/templates")
    environment.filters["duration"] = duration
    environment.filters["decided"] = decided
    environment.filters["value"] = partial(value_text, is_grouped=True)
    return environment


def render(template: str, values: Mapping[str, object], status: int = 200) -> HTMLResponse:
    """Returns a page; the values have the names that the template uses."""
    return HTMLResponse(_environment().get_template(template).render(values), status)


def create_app(results: Path, access: Access) -> FastAPI:
    """Builds the application for one results folder; the folder need not exist yet."""
    context = ServerContext(answers=Answers(results), live=Live(results))

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        context.answers.close()

    app = FastAPI(
        title="fleetrank",
        version=package_versions(["fleetrank"]).get("fleetrank", "unknown"),
        description=DESCRIPTION,
        openapi_url="/api/openapi.json",
        # Both would load scripts from another site.
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.context = context
    app.include_router(api)
    app.include_router(pages)
    app.add_exception_handler(FleetError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_wrong_parameter)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_defect)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=access.hosts, www_redirect=False)
    app.add_middleware(Gate, access=access)
    return app


async def _on_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, FleetError):
        raise error
    status = status_of(error)
    response = _answer(request, status, error.message, error.remedy)
    if status == 503:
        response.headers["retry-after"] = str(RETRY_AFTER_S)
    return response


async def _on_wrong_parameter(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    problems = [
        f"{'.'.join(str(part) for part in one['loc'][1:]) or one['loc'][0]}: {one['msg']}"
        for one in error.errors()
    ]
    remedy = "/api/openapi.json describes the valid values of each parameter"
    return _answer(request, 422, "; ".join(problems), remedy)


async def _on_http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    message = "page not found" if error.status_code == 404 else str(error.detail)
    return _answer(
        request,
        error.status_code,
        message,
        "the pages are / and /query; /api/openapi.json lists the paths of the API",
    )


async def _on_defect(request: Request, _error: Exception) -> Response:
    """The traceback goes to the terminal of the server, never to a client."""
    remedy = "this is a bug in fleetrank; the server's terminal shows the traceback"
    return _answer(request, 500, "unexpected error in the server", remedy)


def _answer(request: Request, status: int, message: str, remedy: str) -> Response:
    """Returns the error as JSON for programs, as a page for browsers."""
    if request.url.path.startswith("/api/"):
        return JSONResponse({"message": message, "remedy": remedy}, status)
    return render(
        "error.html.j2",
        {
            "title": "Not found" if status == 404 else "Error",
            "here": "",
            "message": message,
            "remedy": remedy,
        },
        status=status,
    )

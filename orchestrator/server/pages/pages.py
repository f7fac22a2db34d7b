"""The HTML pages: the growing report, one page per device, model and sweep, tables, SQL."""

import json
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from pydantic import model_validator
from starlette.concurrency import run_in_threadpool

from fleetrank.analysis.sql.sql_views import described_views
from fleetrank.analysis.stored.selection import Selection
from fleetrank.analysis.tables.former_names import request_of
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.orchestrator.compute.jobs import Job, JobKind
from fleetrank.orchestrator.errors import OrchestratorError
from fleetrank.orchestrator.server.api import query_job, table_job
from fleetrank.orchestrator.server.documents import QueryQuery
from fleetrank.orchestrator.server.pages.page_parts import GridTable, grid, render, table_grid
from fleetrank.orchestrator.server.server_context import Context, ServerContext, sent
from fleetrank.orchestrator.workspace.selectors import (
    PAGE_SELECTORS,
    SelectorField,
    SelectorKind,
    Selectors,
    TableFormat,
    selector_fields,
)

router = APIRouter(include_in_schema=False)


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


@router.get("/", name="home")
async def home(asked: Annotated[PageQuery, Query()], context: Context) -> Response:
    """The report, and the running sweeps above it."""
    live = await _live(context)
    return render(
        "home.html.j2", {"title": "Report", "here": "/", "suffix": asked.suffix(), **live}
    )


@router.get("/live")
async def live_part(context: Context) -> Response:
    """The changing part of the home page; a visible page requests it every two seconds."""
    return render("live.html.j2", await _live(context))


@router.get("/report")
async def report(
    asked: Annotated[PageQuery, Query()], context: Context, request: Request
) -> Response:
    """The page that `report build` writes; its own policy names its scripts by their hashes."""
    try:
        response = sent(await context.ask(asked.job()), request)
    except OrchestratorError as error:
        return render(
            "no_report.html.j2", {"title": "No report", "error": error, "suffix": asked.suffix()}
        )
    response.headers["content-security-policy"] = "frame-ancestors 'self'"
    return response


@router.get("/tables")
async def tables() -> Response:
    """All tables by name."""
    named = [(name, [one.name for one in spec.settings]) for name, spec in TABLES.items()]
    return render("tables.html.j2", {"title": "Tables", "here": "/tables", "named": named})


@router.get("/tables/{name}")
async def table(
    name: str, asked: Annotated[Selectors, Query()], context: Context, request: Request
) -> Response:
    """One table, its selectors, and its other forms."""
    basis = await context.ask(table_job(name, asked))
    found = json.loads(basis.body)
    request_now = request_of(name)
    shown, selection = request_now.table, request_now.selection(asked.selection())
    given = [(k, v) for k, v in request.query_params.multi_items() if v]
    forms = [
        (form.value, f"/api/tables/{name}?{urlencode([*given, ('format', form.value)])}")
        for form in TableFormat
    ]
    return render(
        "table.html.j2",
        {
            "title": found["title"],
            "here": "/tables",
            "name": shown,
            "table": table_grid(found),
            "forms": forms,
            "fields": _fields(asked),
            "choices": _choices(shown, selection),
            **_free_settings(shown, selection),
            "basis": basis,
        },
    )


@router.get("/query")
async def query(context: Context, sql: Annotated[str, Query(max_length=20_000)] = "") -> Response:
    """A form for SQL, the answer, and the available columns."""
    answer: GridTable | None = None
    error: OrchestratorError | None = None
    if sql.strip():
        try:
            found = json.loads((await context.ask(query_job(QueryQuery(sql=sql)))).body)
            notes = [f"{found['left_out']}."] if found["left_out"] else []
            if found["is_cut"]:
                notes.append("The first 1,000 rows; /api/query?max_rows= returns more.")
            answer = grid("Answer", found["rows"], notes)
        except OrchestratorError as refused:
            error = refused
    return render(
        "query.html.j2",
        {
            "title": "SQL",
            "here": "/query",
            "sql": sql,
            "answer": answer,
            "error": error,
            "columns": described_views(),
        },
    )


@router.get("/api")
async def api(request: Request) -> Response:
    """The API's document for people; the document itself is /api/openapi.json."""
    document = request.app.openapi()
    return render("api.html.j2", {"title": "API", "here": "/api", "document": document})


async def _live(context: ServerContext) -> dict[str, object]:
    found = await run_in_threadpool(context.live.progress)
    latest = [attempt for sweep in found for attempt in sweep.latest]
    latest.sort(key=lambda attempt: str(attempt["finished_utc"]), reverse=True)
    return {
        "sweeps": found,
        "latest": latest[:10],
        "fingerprint": context.answers.fingerprint(),
    }


def _choices(table: str, selection: Selection) -> list[dict[str, object]]:
    """One form field for each setting with words; a word of a setting is sent as `set`."""
    return [
        {
            "label": one.name,
            "meaning": one.meaning,
            "words": one.words,
            "default": one.default,
            "value": one.chosen(selection),
        }
        for one in TABLES[table].settings
        if one.words
    ]


def _free_settings(table: str, selection: Selection) -> dict[str, object]:
    """The names of numbers and texts, and those that were given, as `set` takes them."""
    names = [one.name for one in TABLES[table].settings if not one.words]
    given = [f"{name}={value}" for name, value in selection.settings if name in names]
    return {"free": names, "given": given or [""]}


def _fields(asked: Selectors) -> list[dict[str, object]]:
    """One form field for each selector but `set`, whose names the table gives.

    A selector that can be repeated has a field for each given value, and an empty one.
    """
    given = asked.model_dump(by_alias=True)
    return [
        {"field": field, "label": field.name.replace("_", " "), "value": value}
        for field in selector_fields()
        if field.name != "set"
        for value in _form_values(field, given[field.name])
    ]


def _form_values(field: SelectorField, given: object) -> tuple[object, ...]:
    if field.kind is SelectorKind.ARRAY and isinstance(given, list | tuple):
        return (*given, "")
    return ("" if given == field.default else given,)

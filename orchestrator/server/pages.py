"""The pages for people: the report as it grows, a page per device, model and sweep, tables, SQL."""

import json
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse

from analysis.sql_views import described_views
from analysis.tables import SETTINGS, TABLES
from orchestrator.errors import OrchestratorError
from orchestrator.selectors import MAX_SEED, Selectors, TableFormat
from orchestrator.server.api import query_job, table_job
from orchestrator.server.chart import TimeChart, time_chart
from orchestrator.server.context import Context, ServerContext, sent
from orchestrator.server.documents import QueryQuery
from orchestrator.server.jobs import Job, JobKind
from orchestrator.server.page_tables import GridTable, facts_grid, grid
from orchestrator.server.templates_of import render

router = APIRouter(include_in_schema=False)
Name = Annotated[str, Query(min_length=1, max_length=500)]
_RECORDED = ("command_line", "git_commit", "host", "python_version", "only", "spec_path")


class PageQuery(BaseModel, extra="forbid"):
    """What the report speaks of."""

    sweep: str | None = Field(default=None, max_length=500)
    include_simulated: bool = False
    seed: int = Field(default=0, ge=0, le=MAX_SEED)

    def job(self) -> Job:
        """The page as a job."""
        return Job(kind=JobKind.PAGE, selectors=self.model_dump_json())

    def suffix(self) -> str:
        """The same as the end of an address."""
        given = self.model_dump(exclude_defaults=True)
        return f"?{urlencode(given)}" if given else ""


@router.get("/", name="home")
async def home(asked: Annotated[PageQuery, Query()], context: Context) -> Response:
    """The report, and above it what runs."""
    live = await _live(context)
    return render(
        "home.html.j2", {"title": "Report", "here": "/", "suffix": asked.suffix(), **live}
    )


@router.get("/live")
async def live_part(context: Context) -> Response:
    """The moving part of the home page; asked for every two seconds while somebody looks."""
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


@router.get("/devices")
async def devices(context: Context) -> Response:
    """All devices."""
    return await _list(context, "devices", "device", "/device")


@router.get("/models")
async def models(context: Context) -> Response:
    """All models."""
    return await _list(context, "models", "model", "/model")


@router.get("/sweeps")
async def sweeps(context: Context) -> Response:
    """All sweeps, those without a published row included."""
    found = await run_in_threadpool(context.live.sweeps)
    rows: list[dict[str, object]] = [
        {
            name: value
            for name, value in status.as_json().items()
            if name not in {"failures", "devices"}
        }
        for status in found
    ]
    table = grid("Sweeps", rows, links={"sweep_id": ("/sweep", "name")})
    return render("list.html.j2", {"title": "Sweeps", "here": "/sweeps", "tables": [table]})


@router.get("/device")
async def device(name: Name, context: Context) -> Response:
    """Facts, conditions over time, repeatability and canary drift of one device."""
    return await _about(context, Job(kind=JobKind.DEVICE, name=name), "/devices", "Device")


@router.get("/model")
async def model(name: Name, context: Context) -> Response:
    """One model on every platform."""
    return await _about(context, Job(kind=JobKind.MODEL, name=name), "/models", "Model")


@router.get("/sweep")
async def sweep(name: Name, context: Context) -> Response:
    """Progress per device, failures, provenance and commands of one sweep."""
    record = await run_in_threadpool(context.live.record, name)
    progress = await run_in_threadpool(context.live.of_sweep, name)
    versions = record.get("versions")
    provenance: dict[str, object] = {key: record.get(key) for key in _RECORDED}
    if isinstance(versions, dict):
        provenance |= {f"{library} version": version for library, version in versions.items()}
    tables, note = await _dossier_or_note(context, Job(kind=JobKind.SWEEP, name=name))
    return render(
        "sweep.html.j2",
        {
            "title": name,
            "here": "/sweeps",
            "progress": progress,
            "note": note,
            "tables": [facts_grid("Provenance", provenance), *tables],
            "spec": record.get("spec_text"),
            "skipped": _skipped(record.get("skipped")),
        },
    )


@router.get("/sweep/live")
async def sweep_live(name: Name, context: Context) -> Response:
    """The moving part of a sweep's page."""
    progress = await run_in_threadpool(context.live.of_sweep, name)
    return render("sweep_live.html.j2", {"progress": progress})


@router.get("/tables")
async def tables() -> Response:
    """All tables by name."""
    named = [(name, SETTINGS.get(name, ())) for name in TABLES]
    return render("tables.html.j2", {"title": "Tables", "here": "/tables", "named": named})


@router.get("/tables/{name}")
async def table(
    name: str, asked: Annotated[Selectors, Query()], context: Context, request: Request
) -> Response:
    """One table, its selectors, and its other forms."""
    answer = await context.ask(table_job(name, asked))
    found = json.loads(answer.body)
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
            "name": name,
            "table": grid(found["title"], found["rows"], found["notes"]),
            "forms": forms,
            "fields": _fields(asked),
            "settings": SETTINGS.get(name, ()),
            "given_setting": next(iter(asked.settings), ""),
            "include_simulated": asked.include_simulated,
            "is_current": answer.is_current,
            "made_utc": answer.made_utc,
        },
    )


@router.get("/query")
async def query(context: Context, sql: Annotated[str, Query(max_length=20_000)] = "") -> Response:
    """SQL by hand, its answer, and what can be asked for."""
    answer: GridTable | None = None
    error: OrchestratorError | None = None
    if sql.strip():
        try:
            found = json.loads((await context.ask(query_job(QueryQuery(sql=sql)))).body)
            notes = ["The first 1,000 rows; /api/query?max_rows= gives more."]
            answer = grid("Answer", found["rows"], notes if found["is_cut"] else ())
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


async def _list(context: ServerContext, view: str, key: str, target: str) -> HTMLResponse:
    answer = await context.ask(Job(kind=JobKind.VIEW, name=view))
    table = grid(view.capitalize(), json.loads(answer.body)["rows"], links={key: (target, "name")})
    return render(
        "list.html.j2", {"title": view.capitalize(), "here": f"/{view}", "tables": [table]}
    )


async def _about(context: ServerContext, job: Job, here: str, kind: str) -> HTMLResponse:
    content = json.loads((await context.ask(job)).body)
    return render(
        "about.html.j2",
        {
            "title": job.name,
            "here": here,
            "kind": kind,
            "charts": [_chart(series) for series in content["series"]],
            "tables": [grid(one["title"], one["rows"], one["notes"]) for one in content["tables"]],
        },
    )


async def _dossier_or_note(context: ServerContext, job: Job) -> tuple[list[GridTable], str | None]:
    """A sweep that has published nothing yet has progress all the same."""
    try:
        content = json.loads((await context.ask(job)).body)
    except OrchestratorError as error:
        return [], f"Nothing of it is published yet: {error.message}."
    return [grid(one["title"], one["rows"], one["notes"]) for one in content["tables"]], None


def _chart(series: dict[str, object]) -> TimeChart:
    points = series["points"]
    pairs = [(str(x), float(y)) for x, y in points] if isinstance(points, list) else []
    return time_chart(str(series["title"]), str(series["unit"]), pairs)


def _fields(asked: Selectors) -> list[dict[str, object]]:
    """One field of the form per selector that is a text."""
    properties = Selectors.model_json_schema()["properties"]
    return [
        {
            "name": name,
            "label": name.replace("_", " "),
            "help": properties[name]["description"],
            "words": properties[name].get("enum"),
            "value": getattr(asked, name) or "",
        }
        for name in properties
        if name not in {"set", "seed", "include_simulated"}
    ]


def _skipped(value: object) -> GridTable | None:
    rows = [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
    return grid("Left out of the plan", rows) if rows else None

"""The pages: the growing report with the running sweeps above it, and a form for SQL."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from importlib import resources
from types import MappingProxyType
from typing import Annotated
from urllib.parse import urlencode

import jinja2
import polars as pl
from fastapi import APIRouter, Query, Response
from pydantic import model_validator
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from fleetrank.analysis.labels import keys_in, labels_of
from fleetrank.analysis.report.html_table import HtmlTable, html_of_rows
from fleetrank.analysis.report.page import templates
from fleetrank.analysis.sql_views import described_views
from fleetrank.analysis.statistics.measured.devices_table import with_states
from fleetrank.analysis.tables.table import Table
from fleetrank.analysis.tables.values import value_text
from fleetrank.foundation.vocabulary import Form
from fleetrank.foundation.wording import duration
from fleetrank.orchestrator.compute.jobs import Job, JobKind
from fleetrank.orchestrator.errors import OrchestratorError
from fleetrank.orchestrator.fleet_state import lines_of_status, listed
from fleetrank.orchestrator.lab import lab_states
from fleetrank.orchestrator.progress_events import decided
from fleetrank.orchestrator.server.api import (
    Context,
    QueryQuery,
    ServerContext,
    query_job,
    sent,
    table_job,
)
from fleetrank.orchestrator.workspace.selectors import PAGE_SELECTORS, Selectors

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


@pages.get("/devices")
async def devices_page(context: Context) -> Response:
    """Every device of the workspace: its state now, and what its stored attempts say."""
    job = table_job("trust/devices", Selectors(include_simulated=True), Form.JSON)
    error: OrchestratorError | None = None
    found: dict[str, list[str]] = {"rows": [], "notes": [], "explanation": []}
    try:
        found = json.loads((await context.ask(job)).body or b"")
    except OrchestratorError as refused:
        error = refused
    frame = pl.DataFrame(found["rows"], infer_schema_length=None)
    states = await run_in_threadpool(lab_states, context.workspace)
    rows = with_states(Table(title="Devices", frame=frame), states).frame.to_dicts()
    answer = html_of_rows("devices", "Devices", rows, found["notes"])
    answer = replace(answer, explanation=tuple(found["explanation"]))
    values = {"title": "Devices", "here": "/devices", "answer": answer, "error": error}
    return render("devices.html.j2", values)


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
    environment.filters["listed"] = listed
    environment.filters["fleet_lines"] = lines_of_status
    environment.filters["value"] = partial(value_text, is_grouped=True)
    return environment


def render(template: str, values: Mapping[str, object], status: int = 200) -> HTMLResponse:
    """Returns a page; the values have the names that the template uses."""
    return HTMLResponse(_environment().get_template(template).render(values), status)

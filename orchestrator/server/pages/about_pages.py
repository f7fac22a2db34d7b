"""Pages about one device, model or sweep, and the lists of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse

from fleetrank.analysis.report.page import chart_specs, json_block
from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.orchestrator.compute.jobs import Job, JobKind
from fleetrank.orchestrator.errors import OrchestratorError
from fleetrank.orchestrator.server.pages.page_parts import (
    GridTable,
    facts_grid,
    grid,
    render,
    table_grid,
)
from fleetrank.orchestrator.server.server_context import Context, ServerContext

router = APIRouter(include_in_schema=False)
Name = Annotated[str, Query(min_length=1, max_length=500)]


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
    """All sweeps, including those without a published row."""
    found = await run_in_threadpool(context.live.sweeps)
    rows: list[dict[str, object]] = [
        {
            name: value
            for name, value in status.as_json().items()
            if name not in {"failures", "n_overcome", "devices"}
        }
        for status in found
    ]
    table = grid("Sweeps", rows, links={"sweep_id": ("/sweep", "name")})
    return render(
        "list.html.j2", {"title": "Sweeps", "here": "/sweeps", "tables": [table], "basis": None}
    )


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
    provenance: dict[str, object] = {
        "command_line": record.command_line,
        "git_commit": record.git_commit,
        "host": record.host,
        "python_version": record.python_version,
        "only": record.only,
        "spec_path": record.spec_path,
        "tags": ", ".join(progress.status.tags) or None,
        "note": progress.status.note,
    }
    provenance |= {f"{library} version": version for library, version in record.versions.items()}
    tables, note = await _dossier_or_note(context, Job(kind=JobKind.SWEEP, name=name))
    return render(
        "sweep.html.j2",
        {
            "title": name,
            "here": "/sweeps",
            "progress": progress,
            "note": note,
            "tables": [facts_grid("Provenance", provenance), *tables],
            "spec": record.spec_text,
            "skipped": _skipped(record),
        },
    )


@router.get("/sweep/live")
async def sweep_live(name: Name, context: Context) -> Response:
    """The moving part of a sweep's page."""
    progress = await run_in_threadpool(context.live.of_sweep, name)
    return render("sweep_live.html.j2", {"progress": progress})


async def _list(context: ServerContext, view: str, key: str, target: str) -> HTMLResponse:
    basis = await context.ask(Job(kind=JobKind.VIEW, name=view))
    table = grid(view.capitalize(), json.loads(basis.body)["rows"], links={key: (target, "name")})
    values = {"title": view.capitalize(), "here": f"/{view}", "tables": [table], "basis": basis}
    return render("list.html.j2", values)


async def _about(context: ServerContext, job: Job, here: str, kind: str) -> HTMLResponse:
    basis = await context.ask(job)
    content = json.loads(basis.body)
    return render(
        "about.html.j2",
        {
            "title": job.name,
            "here": here,
            "kind": kind,
            "basis": basis,
            "charts": [_chart(series) for series in content["series"]],
            "data": json_block({"specs": chart_specs("time"), "charts": content["series"]}),
            "tables": [table_grid(one) for one in content["tables"]],
        },
    )


async def _dossier_or_note(context: ServerContext, job: Job) -> tuple[list[GridTable], str | None]:
    """The tables of a sweep; a note if it has published nothing yet."""
    try:
        content = json.loads((await context.ask(job)).body)
    except OrchestratorError as error:
        return [], f"This sweep has published no rows yet: {error.message}."
    return [table_grid(one) for one in content["tables"]], None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chart:
    """What the page says about a figure over time; the script draws its points."""

    title: str
    unit: str
    low: float
    high: float
    first: datetime
    last: datetime


def _chart(series: Mapping[str, Any]) -> _Chart:
    times, values = zip(*series["points"], strict=True)
    return _Chart(
        title=series["title"],
        unit=series["unit"],
        low=min(values),
        high=max(values),
        first=datetime.fromisoformat(times[0]),
        last=datetime.fromisoformat(times[-1]),
    )


def _skipped(record: SweepRecord) -> GridTable | None:
    rows = [item.model_dump() for item in record.skipped]
    return grid("Not in the plan", rows) if rows else None

"""The JSON API: the tables, relations and SQL of the command line over HTTP."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from fleetrank.analysis.sql.sql_views import described_views
from fleetrank.analysis.tables.former_names import FORMER
from fleetrank.analysis.tables.tables import TABLES
from fleetrank.foundation.strict_json import json_text
from fleetrank.orchestrator.compute.jobs import JSON_TYPE, Job, JobKind
from fleetrank.orchestrator.server.answers import NotFoundError
from fleetrank.orchestrator.server.documents import (
    ColumnAnswer,
    ProgressAnswer,
    QueryQuery,
    RowsAnswer,
    TableName,
    TableQuery,
    problems,
    table_names,
    table_responses,
    view_responses,
)
from fleetrank.orchestrator.server.server_context import Context, ServerContext, sent
from fleetrank.orchestrator.workspace.selectors import Selectors, TableFormat

router = APIRouter(prefix="/api")
Asked = Annotated[Selectors, Query()]
_AS_TABLE = table_responses()


@router.get("/transfer", responses=_AS_TABLE, summary="Rank transfer")
async def transfer(asked: Asked, context: Context, request: Request) -> Response:
    """Spearman's rho of latency and FRM between tiers and platforms, with intervals."""
    return await table_response("transfer", asked, TableFormat.JSON, context, request)


@router.get("/frm", responses=_AS_TABLE, summary="FRM of every model on every platform")
async def frm(asked: Asked, context: Context, request: Request) -> Response:
    """FLOPs, latency and memory, each over the geometric mean of the models, as one figure."""
    return await table_response("frm", asked, TableFormat.JSON, context, request)


@router.get("/pareto", responses=_AS_TABLE, summary="Frontiers of source and target")
async def pareto(asked: Asked, context: Context, request: Request) -> Response:
    """Precision and recall of a source's Pareto frontier, judged on the target."""
    return await table_response("pareto", asked, TableFormat.JSON, context, request)


@router.get("/predictions", responses=_AS_TABLE, summary="Models of a device with few values")
async def predictions(asked: Asked, context: Context, request: Request) -> Response:
    """Predicted latency, memory or energy on the target, with an interval for each model."""
    return await table_response("predictions", asked, TableFormat.JSON, context, request)


@router.get("/tables", response_model=list[TableName], summary="List of tables")
async def tables() -> list[TableName]:
    """Every table by name, with its own settings for `set` and their words."""
    return table_names()


@router.get("/tables/{name}", responses=_AS_TABLE, summary="Any table, in five forms")
async def table(
    name: Annotated[str, Path(description="Name of a table that /api/tables lists.")],
    asked: Annotated[TableQuery, Query()],
    context: Context,
    request: Request,
) -> Response:
    """The table that `fleetrank report show NAME` prints."""
    selectors = Selectors.model_validate(asked.model_dump(by_alias=True, exclude={"format"}))
    return await table_response(name, selectors, asked.format, context, request)


@router.get("/devices", responses=view_responses("devices"), summary="Devices measured")
async def devices(context: Context, request: Request) -> Response:
    """One row per device, with the newest value of each fact."""
    return await view_response("devices", context, request)


@router.get("/models", responses=view_responses("models"), summary="Models measured")
async def models(context: Context, request: Request) -> Response:
    """One row per model, with the newest value of each fact."""
    return await view_response("models", context, request)


@router.get("/sweeps", responses=view_responses("sweeps"), summary="Sweeps with published rows")
async def sweeps(context: Context, request: Request) -> Response:
    """One row per sweep, the newest first."""
    return await view_response("sweeps", context, request)


@router.get("/columns", response_model=list[ColumnAnswer], summary="What SQL sees")
async def columns() -> list[dict[str, object]]:
    """Every column of every relation, with type, unit and meaning."""
    return [asdict(column) for column in described_views()]


@router.get(
    "/query",
    responses={200: {"model": RowsAnswer}, **problems()},
    summary="One SELECT over measurements, devices, models and sweeps",
)
async def query(
    asked: Annotated[QueryQuery, Query()], context: Context, request: Request
) -> Response:
    """Runs one SELECT. The method is GET, because the server is read-only.

    Files, settings and a second statement are not allowed; time, memory and rows are limited.
    """
    return sent(await context.ask(query_job(asked)), request)


@router.get(
    "/progress",
    responses={200: {"model": ProgressAnswer}, **problems()},
    summary="Progress of the sweeps",
)
async def progress(context: Context) -> Response:
    """Read from the growing journals, so it is also answered during a measurement."""
    found = await run_in_threadpool(context.live.progress)
    content = {
        "fingerprint": context.answers.fingerprint(),
        "sweeps": [sweep.as_json() for sweep in found],
    }
    return Response(json_text(content), media_type=JSON_TYPE)


async def table_response(
    name: str,
    selectors: Selectors,
    form: TableFormat,
    context: ServerContext,
    request: Request,
) -> Response:
    """One table.

    Raises:
        NotFoundError: the table does not exist.
        UsageError: a selector is wrong.
    """
    return sent(await context.ask(table_job(name, selectors, form)), request)


async def view_response(view: str, context: ServerContext, request: Request) -> Response:
    """One relation."""
    return sent(await context.ask(Job(kind=JobKind.VIEW, name=view)), request)


def table_job(name: str, selectors: Selectors, form: TableFormat = TableFormat.JSON) -> Job:
    """Returns the job of a table; rejects errors that can be found without reading a file.

    Raises:
        NotFoundError: the table does not exist.
        UsageError: a selector is wrong.
    """
    if name not in TABLES and name not in FORMER:
        raise NotFoundError(f"unknown table '{name}'", f"use one of: {', '.join(TABLES)}")
    selectors.selection()
    text = selectors.model_dump_json(by_alias=True)
    return Job(kind=JobKind.TABLE, name=name, selectors=text, form=form.value)


def query_job(asked: QueryQuery) -> Job:
    """Returns the job of one SELECT."""
    return Job(
        kind=JobKind.QUERY, name=asked.sql, timeout_s=asked.timeout_s, max_rows=asked.max_rows
    )

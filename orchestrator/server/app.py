"""The local web application: the JSON API, the live report, a form for SQL, and their errors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import JSONResponse

from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.installation import package_versions
from fleetrank.orchestrator.server.access import Access, Gate
from fleetrank.orchestrator.server.answers import RETRY_AFTER_S, Answers, status_of
from fleetrank.orchestrator.server.api import DESCRIPTION, ServerContext, api
from fleetrank.orchestrator.server.pages import pages, render
from fleetrank.orchestrator.sweep.sweep_status import Live
from fleetrank.orchestrator.workspace.workspace import Workspace


def create_app(results: Path, access: Access) -> FastAPI:
    """Builds the application for one results folder; the folder need not exist yet."""
    workspace = Workspace(results.parent)
    context = ServerContext(answers=Answers(results), live=Live(results), workspace=workspace)

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
        "the pages are /, /devices and /query; /api/openapi.json lists the paths of the API",
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

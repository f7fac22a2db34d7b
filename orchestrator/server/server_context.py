"""The objects that the routes of one running server share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from fleetrank.orchestrator.compute.jobs import Job
from fleetrank.orchestrator.server.answers import Answer, Answers
from fleetrank.orchestrator.server.live import Live


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """One results folder and the objects that answer questions about it."""

    results: Path
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

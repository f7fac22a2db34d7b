"""`fleetrank report serve`: serves the report as a local web application."""

import sys
from typing import Annotated

import typer

from fleetrank.foundation.errors import failing_as
from fleetrank.foundation.listening import open_listener
from fleetrank.orchestrator.cli.context import readable_workspace
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.extras import require_libraries

_LIBRARIES = ("fastapi", "uvicorn", "jinja2", "vl_convert", "duckdb")
_MAX_CONNECTIONS = 512
"""Maximum open connections: a browser opens six, a team's server needs fewer than 512."""


def serve(
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other than loopback requires a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free port.")
    ] = 8765,
    name: Annotated[
        list[str] | None,
        typer.Option(help="Additional host name of the server, such as a proxy's."),
    ] = None,
) -> None:
    """Serve the report, a page for SQL and a JSON API until Ctrl-C.

    It only reads the results, so it can run during a sweep. If FLEETRANK_TOKEN is set, every
    address requires that token.
    """
    require_libraries("the server", "server", *_LIBRARIES)
    import uvicorn

    from fleetrank.orchestrator.server.access import access_for
    from fleetrank.orchestrator.server.app import create_app

    results = readable_workspace().results
    remedy = "choose another port with --port (0 picks a free one), or another --host"
    with failing_as(UsageError, f"cannot listen on {host}:{port}", remedy, OSError):
        # Now: the address is printed before the server starts.
        listener = open_listener(host, port)
    bound_port = int(listener.getsockname()[1])
    access = access_for(host, bound_port, name or ())
    config = uvicorn.Config(
        create_app(results, access),
        log_level="warning",
        # The access log would contain tokens that are part of an address.
        access_log=False,
        server_header=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_graceful_shutdown=2,
    )
    name_or_ip = f"[{host}]" if ":" in host else host
    token = f"?token={access.token}" if access.token else ""
    print(f"http://{name_or_ip}:{bound_port}/{token}", flush=True)
    print("Press Ctrl-C to stop.", file=sys.stderr, flush=True)
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        print("ended", file=sys.stderr)

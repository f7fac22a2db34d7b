"""`fleetrank report serve`: the report as a local web application."""

import importlib.util
import socket
import sys
from typing import Annotated

import typer

from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.errors import UsageError

_LIBRARIES = ("fastapi", "uvicorn", "jinja2", "vl_convert")
_MAX_CONNECTIONS = 512
"""A browser opens six; a server for a team never sees as many."""


def serve(
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond this machine it asks for a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8765,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A further name that the server is addressed by, such as a proxy's."),
    ] = None,
) -> None:
    """Serve the report and a JSON API until Ctrl-C.

    There are pages per device, model and sweep, too.

    It only reads the results, so that it can run beside a sweep. A token in FLEETRANK_TOKEN is
    asked for on every address.
    """
    missing = [library for library in _LIBRARIES if importlib.util.find_spec(library) is None]
    if missing:
        raise MissingLibraryError(
            f"the server needs {', '.join(missing)}, which is not installed",
            "pip install 'fleetrank[server]'",
        )
    import uvicorn

    from fleetrank.orchestrator.server.access import access_for
    from fleetrank.orchestrator.server.app import create_app

    results = current().workspace.results
    listener = open_listener(host, port)
    bound_port = int(listener.getsockname()[1])
    access = access_for(host, bound_port, frozenset(name or ()))
    config = uvicorn.Config(
        create_app(results, access),
        log_level="warning",
        # It would write tokens that came in an address into a log.
        access_log=False,
        server_header=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_graceful_shutdown=2,
    )
    print(_address(host, bound_port, access.token), flush=True)
    print("Ctrl-C ends it.", file=sys.stderr, flush=True)
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        print("ended", file=sys.stderr)


def open_listener(host: str, port: int) -> socket.socket:
    """A socket that clients can already connect to.

    Raises:
        UsageError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio switches Nagle's delay off, which costs 40 ms an answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # From now on a client waits and is not refused: the address is printed before the start.
        listener.listen()
    except OSError as error:
        listener.close()
        raise UsageError(
            f"{host}:{port} cannot be listened on: {error.strerror or error}",
            "name another port with --port (0 takes a free one), or another --host",
        ) from error
    return listener


def _address(host: str, port: int, token: str | None) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/" + (f"?token={token}" if token else "")

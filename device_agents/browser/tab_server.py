"""The server that pages talk to, one for each address in a process; it runs in its own thread.

A page shows its key with every request but those for the page itself. The server gives a page its
own task's file and nothing else of this computer.
"""

import errno
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from fleetrank.device_agents.browser.assets import served_files
from fleetrank.device_agents.browser.desk import Desk, OverError, ReplacedError, hash_of
from fleetrank.device_agents.browser.place import Place
from fleetrank.device_agents.browser.tab_messages import (
    MAX_ARRAY_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_TEXT_BYTES,
    Beat,
    LoadedFile,
    Pairing,
    TabCall,
)
from fleetrank.device_agents.errors import (
    PermanentError,
    UnusableDeviceError,
    host_in_use,
    missing_library,
)
from fleetrank.foundation.codec import CodecError, from_json
from fleetrank.foundation.errors import FleetError, failing_as
from fleetrank.foundation.listening import open_listener

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request

T = TypeVar("T")
_START_S = 10.0
_HEADERS = {
    # Without the first two a page gets no threads, and a clock with steps of 100 microseconds.
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": (
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self' blob:; "
        "connect-src 'self'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_TYPES = {".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript",
          ".css": "text/css", ".wasm": "application/wasm"}  # fmt: skip
_DESKS: dict[Place, Desk] = {}
_STARTING = threading.Lock()


def serving(place: Place) -> Desk:
    """The desk of the server at a place, which is started if this process has none.

    Raises:
        NotFitError: another process uses the port, such as another sweep.
        MissingLibraryError: the server or the libraries of its page are not installed.
        PermanentError: the address or the certificate cannot be used.
    """
    with _STARTING:
        if place not in _DESKS:
            desk = Desk(link=place.link)
            _start(place, desk)
            _DESKS[place] = desk
        return _DESKS[place]


def _start(place: Place, desk: Desk) -> None:
    try:
        import uvicorn
    except ImportError as error:
        raise missing_library("the server for browsers", "browser", error) from error
    config = uvicorn.Config(
        application(desk), log_level="error", access_log=False, server_header=False,
        ssl_certfile=place.certificate, ssl_keyfile=place.private_key,
        h11_max_incomplete_event_size=MAX_MESSAGE_BYTES, timeout_graceful_shutdown=1,
    )  # fmt: skip
    message = f"the certificate {place.certificate} cannot be used"
    remedy = "give a certificate and its key as files in PEM with `tls`"
    with failing_as(PermanentError, message, remedy, OSError, ValueError):
        config.load()
    served_files()  # a person learns now what is missing, and not from a page that stays empty
    message, remedy = f"cannot listen on {place.listen}", "give an address of this computer"
    with failing_as(PermanentError, message, f"{remedy} with `listen`", OSError):
        try:
            listener = open_listener(place.host, place.port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise host_in_use(f"another process at {place.listen}, perhaps a sweep") from error
    server = uvicorn.Server(config)
    name = f"tabs at {place.listen}"
    # A daemon: tabs do not keep a process alive.
    threading.Thread(target=lambda: server.run([listener]), name=name, daemon=True).start()
    ends_s = time.monotonic() + _START_S
    while not server.started and time.monotonic() < ends_s:
        time.sleep(0.01)


def application(desk: Desk) -> "Starlette":
    """The web application of a desk."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import FileResponse, Response
    from starlette.routing import Route

    async def static(request: Request) -> Response:
        path = served_files().get(request.path_params.get("name", "index.html"))
        if path is None:
            return Response(status_code=404, headers=_HEADERS)
        # What has its hash in its address never changes; the page itself is asked again.
        is_fixed = "version" in request.path_params
        age = "public, max-age=31536000, immutable" if is_fixed else "no-cache"
        headers = {**_HEADERS, "cache-control": age}
        return FileResponse(path, headers=headers, media_type=_TYPES.get(path.suffix))

    def file(desk: Desk, key_hash: str, request: Request) -> Response:
        task = desk.assignment_of(key_hash).task
        if request.path_params["sha256"] != task.artifact_sha256:
            raise OverError("this task has another file", "wait for the next one")
        return FileResponse(task.artifact_path, media_type="application/octet-stream")

    posts = [
        Route(f"/api/{name}", _answering(desk, answer, most), methods=["POST"])
        for name, (answer, most) in _ANSWERS.items()
    ]
    given = Route("/api/file/{sha256}", _answering(desk, file, None))
    places = ("/", "/{name}", "/assets/{version}/{name}")
    return Starlette(routes=[given, *posts, *(Route(one, static) for one in places)])


def _message(cls: type[T], answer: Callable[[Desk, str, T], object]) -> tuple[Any, int]:
    return (
        lambda desk, key, body: answer(desk, key, from_json(cls, body.decode(errors="replace"))),
        MAX_MESSAGE_BYTES,
    )


_ANSWERS: Mapping[str, tuple[Any, int]] = {
    "pair": _message(Pairing, Desk.pair),
    "next": _message(TabCall, Desk.next_task),
    "beat": _message(Beat, Desk.beat),
    "inputs": _message(LoadedFile, Desk.prepare),
    "done": (Desk.finish, MAX_TEXT_BYTES + MAX_ARRAY_BYTES),
}
"""Name of a request to what answers it, and the most bytes of its body."""
_STATUSES: Mapping[type[FleetError], int] = {
    ReplacedError: 409, OverError: 410, UnusableDeviceError: 403,
}  # fmt: skip


def _answering(desk: Desk, answer: Any, most: int | None) -> "Callable[[Request], Any]":
    """A handler; it runs in a thread, and errors become answers that the page shows."""
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response

    async def handle(request: Request) -> Response:
        try:
            key_hash = _key_of(request)
            if answer is not _ANSWERS["pair"][0]:
                desk.require_expected(key_hash)  # before anything of a stranger is read
            given = request if most is None else await _body(request, most)
            found = await run_in_threadpool(answer, desk, key_hash, given)
        except FleetError as error:
            said = {"message": error.message, "remedy": error.remedy}
            status = (code for kind, code in _STATUSES.items() if isinstance(error, kind))
            found = JSONResponse(said, next(status, 422))
        if not isinstance(found, Response):
            found = Response(status_code=204) if found is None else Response(found)
        found.headers.update({**_HEADERS, "cache-control": "no-store"})
        return found

    return handle


def _key_of(request: "Request") -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme != "Bearer" or not 16 <= len(key) <= 200:
        raise UnusableDeviceError("this page has no key", "open the link of a registration")
    return hash_of(key)


async def _body(request: "Request", most: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise CodecError(f"a message has more than {most} bytes", "load the page again")
        parts.append(part)
    return b"".join(parts)

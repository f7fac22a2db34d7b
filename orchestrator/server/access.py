"""Who may ask: who has the token if one is set, this machine if none is, no other site's page."""

import hmac
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fleetrank.foundation.listening import is_loopback
from fleetrank.orchestrator.errors import UsageError

TOKEN_VARIABLE = "FLEETRANK_TOKEN"  # noqa: S105 - a name
_MIN_TOKEN = 16
"""Letters; a shorter token could be guessed over a network."""
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The rules of one running server.

    Attributes:
        token: the required token; `None` if only this machine can send requests.
        hosts: names that a request may have for the server, for Starlette's check. Without a token
            a page whose own name was made to point here (DNS rebinding) could read the answers; no
            browser sends the cookie of one name to another, so a token allows every name.
        cookie: name of the cookie; it contains the port, because cookies do not depend on ports.
    """

    token: str | None
    hosts: tuple[str, ...]
    cookie: str

    def is_token(self, shown: str) -> bool:
        """Whether this is the token, in a time that does not depend on how much of it is right."""
        return self.token is not None and hmac.compare_digest(shown.encode(), self.token.encode())

    def is_shown(self, request: Request) -> bool:
        """Whether a request needs no token or shows it, as a program or as a browser does."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        cookie = request.cookies.get(self.cookie, "")
        return self.token is None or self.is_token(bearer if scheme.lower() == "bearer" else cookie)


def access_for(host: str, port: int, names: Iterable[str] = ()) -> Access:
    """Returns the rules for a server bound to `host`; beyond loopback a token is required.

    Raises:
        UsageError: the token in the environment is too short.
    """
    given = os.environ.get(TOKEN_VARIABLE)
    if given is not None and len(given) < _MIN_TOKEN:
        raise UsageError(
            f"{TOKEN_VARIABLE} has fewer than {_MIN_TOKEN} letters",
            "make one: python -c 'import secrets; print(secrets.token_urlsafe())'",
        )
    token = given if given is not None or is_loopback(host) else secrets.token_urlsafe()
    own = ("*",) if token else (*_LOOPBACK, host, *names)
    return Access(token=token, hosts=own, cookie=f"fleetrank_{port}")


_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'self'"
)
_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "content-security-policy": _POLICY,
        "x-content-type-options": "nosniff",
        "x-frame-options": "SAMEORIGIN",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
        "cross-origin-opener-policy": "same-origin",
        "cache-control": "private, no-cache",
    }
)


class Gate:
    """Rejects requests without access and requests that are not GET; adds headers to the rest."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one connection, as ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(Request(scope))
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        # A page of another site loads this without its user's action; links are allowed.
        is_foreign = request.headers.get("sec-fetch-site") in {"cross-site", "same-site"}
        if is_foreign and request.headers.get("sec-fetch-mode") != "navigate":
            message = "a page of another site sent this request"
            return _said(403, message, "open the address directly")
        given = request.query_params.get("token")
        is_open = self._access.token is None
        is_in_address = given is not None and (is_open or self._access.is_token(given))
        if not is_in_address and not self._access.is_shown(request):
            return _said(
                401,
                "this server requires its token",
                "open the address with ?token= that `fleetrank report serve` printed, or send "
                f"'Authorization: Bearer TOKEN'; {TOKEN_VARIABLE} sets the token",
                {"www-authenticate": "Bearer"},
            )
        if request.method != "GET":
            return _said(
                405,
                f"{request.method} is not allowed: this server is read-only",
                "use GET; SQL goes into the parameter sql of /api/query",
                {"allow": "GET"},
            )
        return self._let_in(request) if is_in_address else None

    def _let_in(self, request: Request) -> Response:
        """Moves the token from the address into a cookie."""
        rest = [(k, v) for k, v in request.query_params.multi_items() if k != "token"]
        # Only the path, so that the redirect cannot lead to another site.
        path = "/" + request.scope["path"].lstrip("/\\")
        response = RedirectResponse(path + (f"?{urlencode(rest)}" if rest else ""), 303)
        if self._access.token is not None:
            response.set_cookie(
                self._access.cookie, self._access.token, httponly=True, samesite="strict"
            )
        return response


def _said(
    status: int, message: str, remedy: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse(
        {"message": message, "remedy": remedy}, status, headers=dict(headers) if headers else None
    )

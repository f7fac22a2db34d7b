"""Who may ask: only this machine's names, the token if one is set, no page of another site."""

import hmac
import ipaddress
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fleetrank.orchestrator.errors import UsageError

TOKEN_VARIABLE = "FLEETRANK_TOKEN"  # noqa: S105 - a name
_MIN_TOKEN = 16
"""Letters; a shorter token could be guessed over a network."""


class Verdict(Enum):
    """The decision about a request."""

    PASS = "pass"  # noqa: S105 - a word
    LET_IN = "let_in"
    """The token is in the address: it moves from the address into a cookie."""
    WRONG_HOST = "wrong_host"
    FOREIGN_PAGE = "foreign_page"
    NO_TOKEN = "no_token"  # noqa: S105 - a word


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The rules of one running server.

    Attributes:
        token: the required token; `None` if only this machine can send requests.
        names: allowed names of the server, in addition to IP addresses and `localhost`.
        cookie: name of the cookie; it contains the port, because cookies do not depend on ports.
    """

    token: str | None
    names: frozenset[str]
    cookie: str

    def judge(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], query_token: str | None
    ) -> Verdict:
        """Decides about a request; header names in lower case."""
        if not _is_own_name(headers.get("host", ""), self.names):
            return Verdict.WRONG_HOST
        # A page of another site loads this without its user's action; links are allowed.
        is_foreign = headers.get("sec-fetch-site") in {"cross-site", "same-site"}
        if is_foreign and headers.get("sec-fetch-mode") != "navigate":
            return Verdict.FOREIGN_PAGE
        if self.token is None:
            return Verdict.PASS if query_token is None else Verdict.LET_IN
        if query_token is not None and self._fits(query_token):
            return Verdict.LET_IN
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        shown = bearer if scheme.lower() == "bearer" else cookies.get(self.cookie, "")
        return Verdict.PASS if self._fits(shown) else Verdict.NO_TOKEN

    def _fits(self, shown: str) -> bool:
        # The time of the comparison does not depend on how many letters are right.
        return self.token is not None and hmac.compare_digest(shown.encode(), self.token.encode())


def access_for(host: str, port: int, names: frozenset[str] = frozenset()) -> Access:
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
    own = {host, socket.gethostname(), socket.getfqdn()} | names
    return Access(
        token=token,
        names=frozenset(name.lower().rstrip(".") for name in own),
        cookie=f"fleetrank_{port}",
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_own_name(host: str, names: frozenset[str]) -> bool:
    """Rejects a page whose own name was made to point here (DNS rebinding).

    All IP addresses are allowed, because an IP address cannot be pointed elsewhere.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    name = name.strip("[]").lower().rstrip(".")
    if name == "localhost" or name in names:
        return bool(name)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


_REFUSED: Mapping[Verdict, tuple[int, str, str]] = MappingProxyType(
    {
        Verdict.WRONG_HOST: (
            421,
            "the name in the address is not a name of this server",
            "use the address that `fleetrank report serve` printed, or start it with `name=NAME`",
        ),
        Verdict.FOREIGN_PAGE: (
            403,
            "a page of another site sent this request",
            "open the address directly",
        ),
        Verdict.NO_TOKEN: (
            401,
            "this server requires its token",
            "open the address with ?token= that `fleetrank report serve` printed, or send "
            f"'Authorization: Bearer TOKEN'; {TOKEN_VARIABLE} sets the token",
        ),
    }
)
_METHODS = {"GET"}
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
        token = request.query_params.get("token")
        verdict = self._access.judge(dict(request.headers), request.cookies, token)
        if verdict in _REFUSED:
            status, message, remedy = _REFUSED[verdict]
            headers = {"www-authenticate": "Bearer"} if verdict is Verdict.NO_TOKEN else None
            return _said(status, message, remedy, headers)
        if request.method not in _METHODS:
            return _said(
                405,
                f"{request.method} is not allowed: this server is read-only",
                "use GET; SQL goes into the parameter sql of /api/query",
                {"allow": "GET"},
            )
        return self._let_in(request) if verdict is Verdict.LET_IN else None

    def _let_in(self, request: Request) -> Response:
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

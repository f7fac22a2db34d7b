"""Checks every request and adds headers to every response."""

from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fleetrank.orchestrator.server.access import TOKEN_VARIABLE, Access, Verdict

_REFUSED: Mapping[Verdict, tuple[int, str, str]] = MappingProxyType(
    {
        Verdict.WRONG_HOST: (
            421,
            "the name in the address is not a name of this server",
            "use the address that `fleetrank report serve` printed, or start it with --name NAME",
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

"""Access rules: only this machine's names, the token if one is set, no page of another site."""

import hmac
import ipaddress
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

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
        if _is_of_foreign_page(headers):
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


def _is_of_foreign_page(headers: Mapping[str, str]) -> bool:
    """Whether a page of another site loads this without its user's action; links are allowed."""
    is_foreign = headers.get("sec-fetch-site") in {"cross-site", "same-site"}
    return is_foreign and headers.get("sec-fetch-mode") != "navigate"

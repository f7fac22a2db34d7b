"""Who gets in: names, tokens, foreign pages."""

import re
import signal
from pathlib import Path

import httpx
import psutil
import pytest
from daily import daily
from serving import Served, serving
from starlette.applications import Starlette
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from fleetrank.foundation.listening import is_loopback
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.server.access import Access, Gate, access_for

TOKEN = "a-token-of-the-tests"


def answer_of(access: Access, path: str = "/", **headers: str) -> tuple[int, httpx.Headers]:
    """What a server with these rules answers; behind them is a page that everyone gets."""
    page = Starlette(routes=[Route("/{rest:path}", lambda _: PlainTextResponse("page"))])
    page.add_middleware(TrustedHostMiddleware, allowed_hosts=access.hosts, www_redirect=False)
    page.add_middleware(Gate, access=access)
    client = TestClient(page, base_url="http://localhost", follow_redirects=False)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = client.get(path, headers=names)
    return answer.status_code, answer.headers


def closed_access() -> Access:
    return Access(token=TOKEN, hosts=("*",), cookie="c")


def test_own_names_pass_and_a_foreign_name_that_points_here_does_not() -> None:
    access = access_for("127.0.0.1", 1, ["bench"])
    own = ("127.0.0.1:8765", "localhost", "LOCALHOST:1", "[::1]:80", "bench:80")
    foreign = ("evil.example", "evil.example:8765", "127.0.0.1.evil.example", "localhost.x", ":80")
    wanted = dict.fromkeys(own, 200) | dict.fromkeys(foreign, 400)
    assert {host: answer_of(access, host=host)[0] for host in wanted} == wanted
    # A cookie has the name under which it was set, so the token is enough.
    named = {"host": "proxy.example", "authorization": f"Bearer {TOKEN}"}
    assert answer_of(closed_access(), **named)[0] == 200


def test_a_foreign_page_may_link_here_and_not_load_from_here() -> None:
    access = access_for("127.0.0.1", 1)
    for mode, status in (("no-cors", 403), ("navigate", 200)):
        found = answer_of(access, sec_fetch_site="cross-site", sec_fetch_mode=mode)
        assert found[0] == status, mode


def test_the_token_is_asked_for() -> None:
    for headers, query, status in (
        ({}, "", 401),
        ({}, "?token=wrong", 401),
        ({}, f"?token={TOKEN}", 303),
        ({"cookie": f"c={TOKEN}"}, "", 200),
        ({"cookie": "c=wrong"}, "", 401),
        ({"authorization": f"Bearer {TOKEN}"}, "", 200),
        ({"authorization": f"bearer {TOKEN}"}, "", 200),
        ({"authorization": f"Basic {TOKEN}"}, "", 401),
        ({"authorization": "Bearer "}, "", 401),
    ):
        found, _ = answer_of(closed_access(), f"/{query}", **headers)
        assert found == status, (headers, query)


def test_an_old_address_with_a_token_leads_on_where_none_is_asked_for() -> None:
    status, headers = answer_of(access_for("127.0.0.1", 1), "/query?token=old&a=b")
    assert (status, headers["location"]) == (303, "/query?a=b")


def test_beyond_this_machine_there_is_always_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLEETRANK_TOKEN", raising=False)
    assert access_for("127.0.0.1", 1).token is None
    made = {access_for("0.0.0.0", 1).token, access_for("bench.example", 1).token}
    assert len(made) == 2
    assert all(token and len(token) > 30 for token in made)
    monkeypatch.setenv("FLEETRANK_TOKEN", TOKEN)
    assert access_for("127.0.0.1", 1).token == TOKEN
    monkeypatch.setenv("FLEETRANK_TOKEN", "short")
    with pytest.raises(UsageError, match="fewer than 16"):
        access_for("127.0.0.1", 1)


def test_loopback_is_told_from_the_rest() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "bench", "")))


@pytest.fixture(scope="module")
def closed(hostile_workspace: Path, own_folders: None):
    with serving(hostile_workspace, "--host", "0.0.0.0") as found:
        yield found


def test_the_printed_address_lets_a_browser_in(closed: Served) -> None:
    base = closed.base.replace("0.0.0.0", "127.0.0.1")
    with httpx.Client(base_url=base) as browser:
        assert browser.get("/query").status_code == 401
        assert browser.get("/assets/live.js").status_code == 401
        first = browser.get("/query", params={"token": closed.token or ""})
        assert (first.status_code, first.headers["location"]) == (303, "/query")
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert browser.get("/query").status_code == 200
        elsewhere = browser.get("//evil.example/x", params={"token": closed.token or "", "a": "b"})
        assert re.match(r"^/[^/]", elsewhere.headers["location"])


def test_a_program_shows_its_token_in_a_header(closed: Served) -> None:
    base = closed.base.replace("0.0.0.0", "127.0.0.1")
    answer = httpx.get(f"{base}/api/tables", timeout=300)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    headers = {"authorization": f"Bearer {closed.token}"}
    assert httpx.get(f"{base}/api/tables", headers=headers, timeout=300).status_code == 200


def test_a_rebound_name_is_refused_by_the_running_server(served: Served) -> None:
    answer = httpx.get(f"{served.base}/api/devices", headers={"host": "evil.example"}, timeout=300)
    assert answer.status_code == 400
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_every_response_carries_the_policy(served: Served) -> None:
    for path in ("/", "/api/tables", "/nope", "/assets/live.js"):
        headers = httpx.get(f"{served.base}{path}", timeout=300).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "script-src 'self';" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "server" not in headers


@pytest.mark.parametrize("ending", daily([signal.SIGINT, signal.SIGKILL], signal.SIGKILL))
def test_the_server_leaves_no_process_behind(hostile_workspace: Path, ending: int) -> None:
    with serving(hostile_workspace) as found:
        for path in ("/api/tables/transfer", "/api/query?sql=SELECT+1"):
            assert httpx.get(f"{found.base}{path}", timeout=300).status_code == 200
        children = psutil.Process(found.process.pid).children()
        assert len(children) == 2
        found.process.send_signal(ending)
        assert found.process.wait(20) == (0 if ending == signal.SIGINT else -signal.SIGKILL)
        _gone, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


def test_a_port_in_use_is_bad_usage(
    served: Served, hostile_workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = served.base.rpartition(":")[2]
    words = ["report", "serve", "--port", port, "--workspace", str(hostile_workspace)]
    assert run(words) == 2
    assert "--port" in capsys.readouterr().err

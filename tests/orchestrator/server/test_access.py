"""Who gets in: names, tokens, foreign pages."""

import re
import signal
from pathlib import Path

import httpx
import psutil
import pytest
from daily import daily
from serving import Served, serving

from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.server.access import Access, Verdict, access_for, is_loopback

TOKEN = "a-token-of-the-tests"
OPEN = Access(token=None, names=frozenset({"bench"}), cookie="c")
CLOSED = Access(token=TOKEN, names=frozenset(), cookie="c")


def test_own_names_and_addresses_pass_and_a_foreign_name_that_points_here_does_not() -> None:
    own = ("127.0.0.1:8765", "localhost", "LOCALHOST:1", "[::1]:80", "192.168.1.7:80", "bench:80",
           "bench.")  # fmt: skip
    foreign = ("", "evil.example", "evil.example:8765", "127.0.0.1.evil.example", "localhost.x",
               ":80")  # fmt: skip
    wanted = dict.fromkeys(own, Verdict.PASS) | dict.fromkeys(foreign, Verdict.WRONG_HOST)
    assert {host: OPEN.judge({"host": host}, {}, None) for host in wanted} == wanted


def test_a_foreign_page_may_link_here_and_not_load_from_here() -> None:
    foreign = {"host": "localhost", "sec-fetch-site": "cross-site"}
    assert OPEN.judge(foreign | {"sec-fetch-mode": "no-cors"}, {}, None) is Verdict.FOREIGN_PAGE
    assert OPEN.judge(foreign | {"sec-fetch-mode": "navigate"}, {}, None) is Verdict.PASS


def test_the_token_is_asked_for() -> None:
    for headers, cookies, query, verdict in (
        ({}, {}, None, Verdict.NO_TOKEN),
        ({}, {}, "wrong", Verdict.NO_TOKEN),
        ({}, {}, TOKEN, Verdict.LET_IN),
        ({}, {"c": TOKEN}, None, Verdict.PASS),
        ({}, {"c": "wr\u00f6ng"}, None, Verdict.NO_TOKEN),
        ({"authorization": f"Bearer {TOKEN}"}, {}, None, Verdict.PASS),
        ({"authorization": f"bearer {TOKEN}"}, {}, None, Verdict.PASS),
        ({"authorization": f"Basic {TOKEN}"}, {}, None, Verdict.NO_TOKEN),
        ({"authorization": "Bearer "}, {}, None, Verdict.NO_TOKEN),
    ):
        found = CLOSED.judge({"host": "localhost", **headers}, cookies, query)
        assert found is verdict, (headers, cookies, query)


def test_an_old_address_with_a_token_leads_on_where_none_is_asked_for() -> None:
    assert OPEN.judge({"host": "localhost"}, {}, "old") is Verdict.LET_IN


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
    assert answer.status_code == 421
    assert "name=NAME" in answer.json()["remedy"]


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

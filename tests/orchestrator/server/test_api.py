"""The API of a running server, asked over HTTP."""

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fleet_rows import HOSTILE_DEVICE, HOSTILE_MODEL, SWEEP

SLOW = "SELECT count(*) FROM range(100000000000) a, range(100000) b"


def test_a_table_is_its_title_notes_and_rows(client: httpx.Client) -> None:
    for name, part in (("transfer", ""), ("flops", "frm"), ("frontier", "pareto")):
        answer = client.get(f"/api/tables/{name}", params={"runtime": "onnx", "part": part})
        assert answer.status_code == 200, name
        content = answer.json()
        assert set(content) == {"title", "notes", "explanation", "rows"}
        assert content["rows"], name


def test_selectors_and_settings_narrow_as_on_the_command_line(client: httpx.Client) -> None:
    selectors = {"model": "res*", "source_tier": "cpu"}
    rows = client.get("/api/tables/latency", params=selectors).json()["rows"]
    assert {row["model"] for row in rows} == {"resnet18", "resnet50"}
    several = {"model": ["resnet18", "*mobile*"], "sweep": [SWEEP, ""]}
    rows = client.get("/api/tables/latency", params=several).json()["rows"]
    assert {row["model"] for row in rows} >= {"resnet18", "mobilenet_v2"}
    assert all(row["model"] == "resnet18" or "mobile" in row["model"] for row in rows)
    answer = client.get("/api/tables/choose", params={"part": "fewest", "set": "threshold=-1"})
    assert sum(row["is_owned"] for row in answer.json()["rows"]) == 1


def test_tables_are_listed_with_their_settings(client: httpx.Client) -> None:
    listed = {one["name"]: one for one in client.get("/api/tables").json()}
    assert listed["transfer"]["words"]["along"][:2] == ["device", "runtime"]
    assert "threshold" in listed["choose"]["settings"]
    assert next(iter(listed["trust"]["parts"])) == "flags"


def test_a_table_comes_in_other_forms(client: httpx.Client) -> None:
    kinds = {"csv": "text/csv", "markdown": "text/markdown", "latex": "application/x-latex"}
    for form, kind in kinds.items():
        answer = client.get("/api/tables/latency", params={"format": form})
        assert answer.headers["content-type"].startswith(kind)
        assert "resnet18" in answer.text, form


def test_relations_are_listed(client: httpx.Client) -> None:
    devices = {row["device"] for row in client.get("/api/devices").json()["rows"]}
    assert HOSTILE_DEVICE in devices
    models = {row["model"] for row in client.get("/api/models").json()["rows"]}
    assert HOSTILE_MODEL in models
    assert [row["sweep_id"] for row in client.get("/api/sweeps").json()["rows"]] == [SWEEP]
    units = {one["column"]: one["unit"] for one in client.get("/api/columns").json()}
    assert units["latency_p50_ns"] == "ns"


def test_sql_is_answered_and_cut(client: httpx.Client) -> None:
    asked = {"sql": "SELECT model FROM models ORDER BY model", "max_rows": 2}
    answer = client.get("/api/query", params=asked)
    assert answer.json()["is_cut"] is True
    assert len(answer.json()["rows"]) == 2
    # JSON has no NaN, and bytes are no text.
    odd = client.get("/api/query", params={"sql": "SELECT 'nan'::DOUBLE AS x, 'a'::BLOB AS b"})
    assert odd.json()["rows"] == [{"x": None, "b": "61"}]


ERRORS = (
    ("/api/query?sql=DROP+VIEW+models", 400, "DROP"),
    ("/api/query?sql=SELECT+*+FROM+read_csv('/etc/passwd')", 400, "outside the results"),
    ("/api/query?sql=SELECT+1;SELECT+2", 400, "2 statements"),
    ("/api/query?sql=SELECT+repeat('abcdefgh',+500000000)", 400, "memory"),
    ("/api/query", 422, "sql"),
    ("/api/query?sql=SELECT+1&max_rows=0", 422, "max_rows"),
    ("/api/tables/transfer?runtime=onx", 400, "onx"),
    ("/api/tables/transfer?colour=red", 422, "colour"),
    ("/api/tables/transfer?seed=-1", 422, "seed"),
    ("/api/tables/transfer?sweep=none", 404, "none"),
    ("/api/tables/transfer?workload=prefill@9999999999", 400, "prefill@9999999999"),
    ("/api/tables/predict?target=pixel-77", 404, "pixel-7"),
    ("/api/tables/predict?set=coverage=2", 400, "coverage"),
    ("/api/tables/choose?part=fewest&set=threshold=x", 400, "threshold"),
    ("/api/tables/flops?part=frm&set=weight_flops=1e308", 400, "no finite figures"),
    ("/api/tables/nope", 404, "nope"),
    ("/api/tables/trust?part=celing", 404, "celing"),
    ("/api/nope", 404, "page not found"),
)


def test_an_error_has_its_status_a_message_and_a_remedy(client: httpx.Client) -> None:
    for path, status, said in ERRORS:
        answer = client.get(path)
        assert answer.status_code == status, path
        assert set(answer.json()) == {"message", "remedy"}
        assert said in answer.json()["message"], path
        assert answer.json()["remedy"], path


def test_nothing_but_reading_is_answered(client: httpx.Client) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        answer = client.request(method, "/api/query", params={"sql": "SELECT 1"})
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET"), method


def test_a_slow_query_ends_in_time_and_the_next_is_answered(client: httpx.Client) -> None:
    answer = client.get("/api/query", params={"sql": SLOW, "timeout_s": 0.5})
    assert answer.status_code == 400
    assert "longer than 0.5 s" in answer.json()["message"]
    assert client.get("/api/query", params={"sql": "SELECT 1 AS n"}).json()["rows"] == [{"n": 1}]


@pytest.mark.thorough
def test_while_one_query_runs_the_server_answers_the_rest(client: httpx.Client) -> None:
    mine = client.get("/api/tables/transfer").headers["etag"]
    slow = threading.Thread(
        target=lambda: client.get("/api/query", params={"sql": SLOW, "timeout_s": 5})
    )
    slow.start()
    try:
        for path in ("/api/tables/transfer", "/api/progress", "/api/tables", "/live"):
            answer = client.get(path, timeout=2.0, headers={"if-none-match": mine})
            assert answer.status_code == (304 if path == "/api/tables/transfer" else 200)
        assert slow.is_alive()
    finally:
        slow.join()


def test_sixteen_clients_get_the_same_answer(client: httpx.Client) -> None:
    with ThreadPoolExecutor(16) as pool:
        paths = ["/api/tables/transfer?seed=4711"] * 32
        answers = list(pool.map(client.get, paths))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1


def test_what_the_client_has_is_not_sent_again(client: httpx.Client) -> None:
    first = client.get("/api/tables/flops")
    assert first.headers["fleetrank-current"] == "true"
    again = client.get("/api/tables/flops", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_document_is_complete(client: httpx.Client) -> None:
    document = client.get("/api/openapi.json").json()
    paths = set(document["paths"])
    for name in ("devices", "query", "progress", "tables/{name}"):
        assert f"/api/{name}" in paths
    assert all(path.startswith("/api/") for path in paths)
    for methods in document["paths"].values():
        assert set(methods) == {"get"}
        for parameter in methods["get"].get("parameters", ()):
            assert parameter["description"]


def test_progress_of_a_finished_sweep_comes_from_its_record(client: httpx.Client) -> None:
    content = client.get("/api/progress").json()
    assert [sweep["state"] for sweep in content["sweeps"]] == ["finished"]


def test_only_our_own_assets_are_there_and_pages_escape_every_value(client: httpx.Client) -> None:
    assert "--paper" in client.get("/assets/page.css").text
    assert client.get("/assets/nothing.js").status_code == 404
    page = client.get("/query", params={"sql": "SELECT '<script>x' AS \"<i>\""}).text
    assert "<script>x" not in page.partition("<main")[2]
    assert "&lt;script&gt;x" in page
    assert "<i>" not in page


def test_a_client_that_leaves_ends_its_query(client: httpx.Client) -> None:
    """Seven that wait for the longest query would take longer than an eighth waits."""
    for _ in range(7):
        with pytest.raises(httpx.ReadTimeout):
            client.get("/api/query", params={"sql": SLOW, "timeout_s": 10}, timeout=0.3)
    asked = {"sql": "SELECT 1 AS one", "timeout_s": 10}
    assert client.get("/api/query", params=asked).json()["rows"] == [{"one": 1}]

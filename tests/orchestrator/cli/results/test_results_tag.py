"""Tags of `sweep status`, and where tags are shown and select, as they are typed."""

import json
from pathlib import Path

import pytest
from fleet_rows import NETS, PLACES, write_results

from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.server.pages import render
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.sweep.sweep_status import Live

HOSTILE_TAG = "<b>cooler</b>"
HOSTILE_NOTE = "</script><script>alert('note')</script>"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "cluster.yaml").touch()
    write_results(tmp_path / "results", nets=NETS[:4], places=PLACES[:2], n_samples=5)
    return tmp_path


@pytest.fixture
def sweep_id(workspace: Path) -> str:
    """One of its sweeps, which has a record."""
    parts = sorted((workspace / "results/measurements").glob("sweep_id=*"))
    found = parts[0].name.removeprefix("sweep_id=")
    if found not in ResultStore(workspace / "results").sweep_ids():
        record = SweepRecord.model_validate({"sweep_id": found, "state": "finished"})
        ResultStore(workspace / "results").create_sweep(record)
    return found


def _run(workspace: Path, *words: str) -> int:
    return run([*words, "--workspace", str(workspace)])


@pytest.mark.thorough
def test_tags_are_shown_in_list_status_and_page_without_harm(
    workspace: Path, sweep_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        _run(workspace, "sweep", "status", sweep_id, "--tag", HOSTILE_TAG, "--note", HOSTILE_NOTE)
        == 0
    )
    capsys.readouterr()
    assert _run(workspace, "results", "list", "--json") == 0
    found = {row["sweep_id"]: row for row in json.loads(capsys.readouterr().out)}[sweep_id]
    assert (found["tags"], found["note"]) == ([HOSTILE_TAG], HOSTILE_NOTE)
    assert _run(workspace, "sweep", "status", sweep_id) == 0
    shown = capsys.readouterr().out
    assert f"tags      {HOSTILE_TAG}" in shown
    assert HOSTILE_NOTE in shown
    out = workspace / "page.html"
    assert _run(workspace, "report", "build", "--out", str(out)) == 0
    page = out.read_text()
    assert "&lt;b&gt;cooler&lt;/b&gt;" in page
    assert HOSTILE_TAG not in page
    assert HOSTILE_NOTE not in page


def test_a_tag_selects_the_rows_of_tables(
    workspace: Path, sweep_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("report", "show", "latency", "--format", "json", "--sweep")
    assert _run(workspace, *words, sweep_id) == 0
    by_id = capsys.readouterr().out
    assert _run(workspace, "sweep", "status", sweep_id, "--tag", "base") == 0
    capsys.readouterr()
    assert _run(workspace, *words, "tag:base") == 0
    assert capsys.readouterr().out == by_id
    assert _run(workspace, *words, "tag:bases") == 4
    assert "base" in capsys.readouterr().err


def test_the_page_of_a_sweep_shows_tags_and_counts_repeats_from_one(
    workspace: Path, sweep_id: str
) -> None:
    assert _run(workspace, "sweep", "status", sweep_id, "--tag", "base") == 0
    [progress] = Live(workspace / "results").progress()
    assert (progress.sweep_id, progress.tags) == (sweep_id, ("base",))
    row = dict.fromkeys(("finished_utc", "device", "platform_key", "error_kind"))
    row |= {"repeat": 0, "model": "m", "flags": [], "latency_ms": 1.0}
    shown = render(
        "live.html.j2", {"fingerprint": "f", "sweeps": [progress], "latest": [row], "said": str}
    )
    assert '<td class="number">1</td>' in bytes(shown.body).decode()

"""Tags of `sweep status`, and where tags are shown and select, as they are typed."""

from pathlib import Path

import pytest
from fleet_rows import NETS, PLACES, SWEEP, write_results

from fleetrank.orchestrator.server.pages import render
from fleetrank.orchestrator.sweep.sweep_status import Live

HOSTILE_TAG = "<b>cooler</b>"
HOSTILE_NOTE = "</script><script>alert('note')</script>"
TAGGED = f"sweep status {SWEEP} --tag"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "cluster.yaml").touch()
    write_results(tmp_path / "results", nets=NETS[:4], places=PLACES[:2], n_samples=5)
    return tmp_path


@pytest.mark.thorough
def test_tags_are_shown_in_list_status_and_page_without_harm(asked, workspace: Path) -> None:
    assert asked(TAGGED, HOSTILE_TAG, "--note", HOSTILE_NOTE).code == 0
    (found,) = asked("results list --json").json
    assert (found["tags"], found["note"]) == ([HOSTILE_TAG], HOSTILE_NOTE)
    shown = asked(f"sweep status {SWEEP}").out
    assert f"tags      {HOSTILE_TAG}" in shown
    assert HOSTILE_NOTE in shown
    out = workspace / "page.html"
    assert asked("report build --out", str(out)).code == 0
    page = out.read_text()
    assert "&lt;b&gt;cooler&lt;/b&gt;" in page
    assert HOSTILE_TAG not in page
    assert HOSTILE_NOTE not in page


def test_a_tag_selects_the_rows_of_tables(asked) -> None:
    show = "report show latency --format json --sweep"
    by_id = asked(show, SWEEP).out
    assert asked(f"{TAGGED} base").code == 0
    assert asked(show, "tag:base").out == by_id
    unknown = asked(show, "tag:bases")
    assert (unknown.code, "base" in unknown.err) == (4, True)


def test_the_page_of_a_sweep_shows_tags_and_counts_repeats_from_one(asked, workspace: Path) -> None:
    assert asked(f"{TAGGED} base").code == 0
    [progress] = Live(workspace / "results").progress()
    assert (progress.sweep_id, progress.tags) == (SWEEP, ("base",))
    row = dict.fromkeys(("finished_utc", "device", "platform_key", "error_kind"))
    row |= {"repeat": 0, "model": "m", "flags": [], "latency_ms": 1.0}
    shown = render(
        "live.html.j2", {"fingerprint": "f", "sweeps": [progress], "latest": [row], "said": str}
    )
    assert '<td class="number">1</td>' in bytes(shown.body).decode()

"""`results delete` and `import --from workspace`: plans, refusals, and an end at every step."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import killed_at
import pytest
from daily import daily
from killed_at import dying_before
from two_sweeps import GOES, KEPT, make_workspace

from fleetrank.analysis.errors import NoDataError
from fleetrank.analysis.sql import run_query
from fleetrank.analysis.stored.columns import ORIGINS
from fleetrank.analysis.stored.exclusions import read_exclusions
from fleetrank.analysis.stored.load import load_measurements
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.server.answers import Fingerprint
from fleetrank.orchestrator.store.health import content_of
from fleetrank.orchestrator.store.results import ResultStore

NEW = "new-20261122T080000-cc33"
_STRIDE = 6
"""Of some 30 changes of files every sixth is enough for a suite."""


def _run(workspace: Path, *words: str) -> int:
    return run(["results", *words, "--workspace", str(workspace)])


def _copied(other: Path) -> list[str]:
    return ["import", str(other), "--from", "workspace"]


def _seen(workspace: Path) -> dict[str, dict[str, int]]:
    """By reader: sweep to rows, as far as the reader knows of rows."""
    results = workspace / "results"
    store = ResultStore(results)
    frame = load_measurements(results, origins=ORIGINS).group_by("sweep_id").len().collect()
    sql = run_query(
        results, "SELECT sweep_id, count(*) AS n FROM all_measurements GROUP BY sweep_id"
    )
    view = run_query(results, "SELECT sweep_id, n_attempts, state FROM sweeps")
    assert set(view["state"]) == {"finished"}
    return {
        "tables": dict(frame.iter_rows()),
        "sql": dict(sql.iter_rows()),
        "view": dict(view.select("sweep_id", "n_attempts").iter_rows()),
        "list": {one: content_of(store, one).n_rows for one in store.sweep_ids()},
    }


def _everything(workspace: Path, sweep: str) -> list[str]:
    paths = (workspace / "results").rglob("*")
    return sorted(str(path) for path in paths if sweep in path.name)


def test_delete_shows_its_plan_and_waits_for_yes(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _seen(workspace)
    assert _run(workspace, "delete", GOES) == 0
    shown = capsys.readouterr()
    assert GOES in shown.out
    assert "nothing deleted" in shown.out
    assert "--yes" in shown.err
    assert _seen(workspace) == before
    assert _run(workspace, "delete", GOES, "--json") == 0
    [plan] = json.loads(capsys.readouterr().out)
    assert (plan["n_rows"], plan["n_raw_logs"], plan["exclusions"]) == (4, 1, [2])
    assert plan["n_bytes"] > 0
    assert plan["is_done"] is False


def test_delete_leaves_nothing_of_a_sweep_and_all_of_the_others(workspace: Path) -> None:
    kept = _everything(workspace, KEPT)
    assert _run(workspace, "delete", GOES, "--yes") == 0
    assert _everything(workspace, GOES) == []
    assert _everything(workspace, KEPT) == kept
    assert [one.sweep_id for one in read_exclusions(workspace / "results").entries] == [KEPT]
    for rows in _seen(workspace).values():
        assert list(rows) == [KEPT]


def test_delete_takes_a_sweep_whose_record_is_damaged(workspace: Path) -> None:
    (workspace / "results" / "sweeps" / f"{GOES}.json").write_text("{half")
    assert _run(workspace, "delete", GOES, "--yes") == 0
    assert _everything(workspace, GOES) == []


def test_an_unknown_sweep_is_named_and_nothing_goes(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(workspace, "delete", KEPT, GOES[:-1], "--yes") == 2
    assert GOES in capsys.readouterr().err
    assert _run(workspace, "delete", "../x", "--yes") == 2
    assert set(_seen(workspace)["tables"]) == {KEPT, GOES}


def test_a_sweep_that_runs_is_neither_deleted_nor_merged(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = make_workspace(tmp_path / "here", NEW)
    with ResultStore(workspace / "results").lease(GOES):
        assert _run(workspace, "delete", KEPT, GOES, "--yes") == 2
        assert "is being run" in capsys.readouterr().err
        assert _run(here, *_copied(workspace)) == 2
        assert "it runs in" in capsys.readouterr().err
    assert set(_seen(workspace)["tables"]) == {KEPT, GOES}
    assert set(_seen(here)["tables"]) == {NEW}


def test_merge_copies_what_is_not_here_and_a_second_run_skips_it(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = make_workspace(tmp_path / "here", NEW)
    assert _run(here, *_copied(workspace)) == 0
    capsys.readouterr()
    for rows in _seen(here).values():
        assert set(rows) == {NEW, KEPT, GOES}
    one = content_of(ResultStore(here / "results"), GOES)
    assert one == content_of(ResultStore(workspace / "results"), GOES)
    entries = read_exclusions(here / "results").entries
    assert [(e.number, e.sweep_id) for e in entries] == [(1, NEW), (2, KEPT), (3, GOES)]
    assert (here / "results" / "raw" / GOES / "a-0-0.log.gz").read_bytes() == b"log"
    assert _run(here, *_copied(workspace), "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert {step["step"] for step in plan} == {"skip"}
    assert read_exclusions(here / "results").entries == entries


def test_equal_rows_in_other_files_are_skipped(workspace: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    shutil.copytree(workspace, here)
    [part] = (here / "results" / "measurements" / f"sweep_id={GOES}").iterdir()
    part.unlink()
    assert _run(here, "verify", GOES, "--repair") == 0
    assert _run(here, *_copied(workspace)) == 0


def test_two_sweeps_of_one_name_are_refused_with_both_places(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here"
    shutil.copytree(workspace, here)
    ResultStore(here / "results").update_record(GOES, {"state": "interrupted"})
    assert _run(here, *_copied(workspace)) == 2
    message = capsys.readouterr().err
    assert str(here / "results") in message
    assert str(workspace / "results") in message


def test_a_newer_workspace_and_this_one_are_refused(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = make_workspace(tmp_path / "here", NEW)
    assert _run(here, *_copied(here)) == 2
    assert _run(here, *_copied(tmp_path)) == 2
    (workspace / "results" / "schema.json").write_text('{"schema_version": 99}')
    capsys.readouterr()
    assert _run(here, *_copied(workspace)) == 2
    assert "99" in capsys.readouterr().err
    assert set(_seen(here)["tables"]) == {NEW}


def test_a_link_in_the_other_workspace_is_not_followed(workspace: Path, tmp_path: Path) -> None:
    here = make_workspace(tmp_path / "here", NEW)
    (workspace / "results" / "raw" / GOES / "b.log.gz").symlink_to("/etc/passwd")
    assert _run(here, *_copied(workspace)) == 2
    assert GOES not in _seen(here)["tables"]


def test_the_server_sees_that_a_sweep_came_or_went(workspace: Path) -> None:
    before = Fingerprint(workspace / "results").now()
    (workspace / "results" / "sweeps" / f"{GOES}.pending").write_text('{"operation": "merge"}')
    assert Fingerprint(workspace / "results").now() != before


@pytest.mark.parametrize("command", daily(["delete", "import"], "delete"))
def test_an_end_at_any_step_leaves_all_or_nothing_and_the_next_run_ends_it(
    workspace: Path, tmp_path: Path, command: str
) -> None:
    """Every reader agrees after each end; the sweeps around it are never touched."""
    other = make_workspace(tmp_path / "other", NEW)
    sweep, words = (
        (GOES, ["delete", GOES, "--yes"]) if command == "delete" else (NEW, _copied(other))
    )
    sights = set()
    for number in itertools.count(1, _STRIDE):
        here = tmp_path / f"here{number}"
        shutil.copytree(workspace, here)
        with dying_before(number, str(here)) as refused:
            assert _run(here, *words) == 0
        if not refused:
            break
        sights.add(_sight_until_done(here, sweep, *words))
    assert number > 3 * _STRIDE
    assert "nothing" in sights


def _sight_until_done(here: Path, sweep: str, *words: str) -> str:
    """What readers see after a command was ended, and checks what the next run makes of it."""
    sight, is_import = _sight(here, sweep), words[0] == "import"
    # Of a deletion that was ended at its very end nothing is left to name.
    if is_import or _everything(here, sweep):
        assert _run(here, *words) == 0
    assert _sight(here, sweep) == ("all" if is_import else "nothing")
    assert not list((here / "results" / "sweeps").glob("*.pending"))
    assert is_import or not _everything(here, sweep)
    return sight


def test_kill_9_in_a_delete_leaves_what_the_next_run_ends(workspace: Path) -> None:
    """Only a process that is killed shows that the system keeps what was written until then."""
    words = ["delete", GOES, "--yes"]
    ended = subprocess.run(
        [sys.executable, "-P", killed_at.__file__, "9", str(workspace), "results", *words,
         "--workspace", str(workspace)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert _everything(workspace, GOES), "it was not over"
    _sight_until_done(workspace, GOES, *words)


def _sight(workspace: Path, sweep: str) -> str:
    """Whether all readers see all of a sweep, or nothing."""
    try:
        seen = _seen(workspace)
    except NoDataError:
        return "nothing"
    rows = {reader: found.get(sweep) for reader, found in seen.items()}
    assert set(rows.values()) in ({None}, {4}), rows
    assert all(KEPT in found for found in seen.values())
    return "nothing" if rows["tables"] is None else "all"

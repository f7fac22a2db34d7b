"""`results exclude` as it is typed: its three forms, what they refuse and what they leave alone."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from fleet_rows import NETS, PLACES, write_results

from fleetrank.analysis.stored.sweep_record import SweepRecord
from fleetrank.orchestrator.cli.main import run
from fleetrank.orchestrator.store.results import ResultStore

OLD, NEW = "s-20260101T000000-aa", "s-20260102T000000-bb"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    (root / "cluster.yaml").touch()
    options = {"nets": NETS[:4], "places": PLACES[:2], "repeats": 2, "n_samples": 3}
    for sweep in (OLD, NEW):
        write_results(root / "results", sweep=sweep, **options)
    return root


@pytest.fixture
def workspace(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of its own."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def listed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    capsys.readouterr()
    assert run(["results", "exclude", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def sweeps_of(capsys: pytest.CaptureFixture[str]) -> set[str]:
    capsys.readouterr()
    assert run(["query", "--json", "SELECT DISTINCT sweep_id FROM measurements "
                "WHERE excluded IS NULL"]) == 0  # fmt: skip
    return {row["sweep_id"] for row in json.loads(capsys.readouterr().out)}


def exclude(*words: str) -> int:
    return run(["results", "exclude", *words])


def test_a_sweep_goes_is_listed_and_comes_back(workspace, capsys) -> None:
    assert exclude() == 0
    assert capsys.readouterr().out == "(none)\n"
    assert exclude(NEW, "--reason", "the fan was off") == 0
    assert "exclude --undo 1" in capsys.readouterr().out
    (row,) = listed(capsys)
    n_rows = row.pop("n_rows")
    assert n_rows >= 16
    assert str(row.pop("excluded_utc")).startswith("20")
    assert row == {"number": 1, "sweep_id": NEW, "pattern": None, "reason": "the fan was off"}
    assert sweeps_of(capsys) == {OLD}
    assert exclude("--undo", "1") == 0
    assert NEW in capsys.readouterr().out
    assert listed(capsys) == []
    assert sweeps_of(capsys) == {OLD, NEW}


def test_a_cell_that_was_not_measured_is_refused(workspace, capsys) -> None:
    assert exclude(NEW, "--only", "resnet18 on no-such/*", "--reason", "x") == 2
    assert "no-such" in capsys.readouterr().err
    assert listed(capsys) == []


def test_the_list_of_sweeps_says_what_is_left_out(workspace, capsys) -> None:
    def said() -> dict[str, object]:
        assert run(["results", "list", "--json"]) == 0
        return {row["sweep_id"]: row["excluded"] for row in json.loads(capsys.readouterr().out)}

    assert said() == {OLD: None, NEW: None}
    assert exclude(NEW, "--only", "resnet18", "--reason", "x") == 0
    capsys.readouterr()
    assert said() == {OLD: None, NEW: "in part"}
    assert exclude(NEW, "--reason", "y") == 0
    assert exclude(NEW, "--only", "resnet50", "--reason", "z") == 0
    capsys.readouterr()
    assert said() == {OLD: None, NEW: "whole"}


def test_stored_rows_and_exports_keep_what_is_excluded(workspace, capsys) -> None:
    files = [path for path in (workspace / "results").rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    assert exclude(NEW, "--reason", "x; y") == 0
    assert {path: path.read_bytes() for path in files} == before
    capsys.readouterr()
    assert run(["results", "export"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {(row["sweep_id"], row["excluded"]) for row in rows} == {(OLD, ""), (NEW, "x; y")}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([NEW], "needs a reason"),
        ([NEW, "--reason", "   "], "needs a reason"),
        ([NEW, "--reason", "x" * 201], "at most 200 letters"),
        ([NEW[:-1], "--reason", "x"], f"did you mean '{NEW}'?"),
        (["../" + NEW, "--reason", "x"], "not the id of a sweep"),
        ([NEW, "--reason", "x", "--only", "resnet81"], "did you mean 'resnet18'?"),
        ([NEW, "--reason", "x", "--only", ""], "no stored row"),
        ([NEW, "--reason", "x", "--only", "zzz*"], "its models are densenet121, "),
        (["--reason", "x"], "the list cannot be combined with --reason"),
        (["--only", "x"], "the list cannot be combined with --only"),
        (["--undo", "1"], "exclusion 1 "),
        (["--undo", "1", "--reason", "x"], "--undo cannot be combined with --reason"),
        ([NEW, "--undo", "1"], "--undo cannot be combined with a sweep"),
    ],
)
def test_what_cannot_be_meant_is_bad_usage(workspace, capsys, words, said) -> None:
    assert exclude(*words) == 2
    assert said in capsys.readouterr().err
    assert listed(capsys) == []


@pytest.mark.thorough
def test_a_sweep_that_runs_can_be_excluded(workspace, capsys, new_row) -> None:
    """What it measures later is out, too, and it goes on as ever."""
    store = ResultStore(workspace / "results")
    row = new_row()
    sweep = str(row["sweep_id"])
    store.create_sweep(SweepRecord(sweep_id=sweep))
    with store.lease(sweep), store.open_journal(sweep) as journal:
        journal.append(row)
        journal.flush()
        # Only the journal has it so far.
        assert exclude(sweep, "--only", "box/onnx/*", "--reason", "too warm") == 0
        assert exclude(sweep, "--only", "nothing", "--reason", "x") == 2
        assert [entry["n_rows"] for entry in listed(capsys)] == [0]
        journal.append(row | {"repeat": 1})
        journal.flush()
        store.publish(sweep)
    assert [entry["n_rows"] for entry in listed(capsys)] == [2]
    assert sweeps_of(capsys) == {OLD, NEW}


def test_an_exclusion_outlives_its_sweep(workspace, capsys) -> None:
    assert exclude(NEW, "--reason", "x") == 0
    for suffix in ("json", "parts"):
        (workspace / "results" / "sweeps" / f"{NEW}.{suffix}").unlink()
    for part in (workspace / "results").glob(f"measurements/sweep_id={NEW}/*"):
        part.unlink()
    assert [entry["n_rows"] for entry in listed(capsys)] == [0]
    assert run(["report", "show", "latency"]) == 0
